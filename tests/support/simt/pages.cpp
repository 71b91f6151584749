#include "pages.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace simt {
namespace {

constexpr std::size_t kReserve = std::size_t{1} << 37;
constexpr int kReachable = PROT_READ | PROT_WRITE;
unsigned char *reserved = nullptr, *next = nullptr;
std::map<unsigned char*, std::size_t> taken;  // their bytes
int opened = 0;

// What a thread may do by it, the threads that it makes may do too: nobody makes threads while pages are open.
int key() {
  static const int made = [] {
    const char* const wanted = std::getenv("STANDIN_KEYS");
    if (wanted && std::strcmp(wanted, "0") == 0) return -1;
    const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key < 0 || pkey_set(key, PKEY_DISABLE_ACCESS) == 0) return key;
    pkey_free(key);
    return -1;
  }();
  return made;
}
bool guard(unsigned char* pages, std::size_t bytes) {
  return (key() >= 0 ? pkey_mprotect(pages, bytes, kReachable, key())
                     : mprotect(pages, bytes, opened ? kReachable : PROT_NONE)) == 0;
}
void let_through(bool wanted) {
  if (key() >= 0) pkey_set(key(), wanted ? 0 : PKEY_DISABLE_ACCESS);
  else
    for (const auto& [pages, bytes] : taken) mprotect(pages, bytes, wanted ? kReachable : PROT_NONE);
}

}  // namespace

unsigned char* take_pages(std::size_t bytes) {
  if (!reserved) {
    void* p = mmap(nullptr, kReserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    reserved = next = static_cast<unsigned char*>(p);
  }
  if (static_cast<std::size_t>(reserved + kReserve - next) < bytes + 2 * kPage) return nullptr;
  unsigned char* const pages = next + kPage;
  if (!guard(pages, bytes)) return nullptr;
  next = pages + bytes;
  taken[pages] = bytes;
  return pages;
}

bool share_pages(unsigned char* pages, int descriptor) {
  const std::size_t bytes = taken.at(pages);
  return mmap(pages, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, descriptor, 0) != MAP_FAILED && guard(pages, bytes);
}

void drop_pages(unsigned char* pages) {
  mmap(pages, taken.at(pages), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  taken.erase(pages);
}

bool in_pages(const void* p) { return reserved && p >= reserved && p < reserved + kReserve; }

void open_pages() {
  if (opened++ == 0) let_through(true);
}
void close_pages() {
  if (--opened == 0) let_through(false);
}
bool last_to_close() { return opened == 1; }

}  // namespace simt
