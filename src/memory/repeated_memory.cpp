#include "memory/repeated_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/reserve.hpp"
#include "memory/shared_memory.hpp"

namespace crimp {
namespace {

constexpr std::size_t kRepeated = kReserveBytes;  // what the reserve can give

class RepeatedMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) override {
    give_reserve();
    const SharedMemory pages(kRepeated);
    void* const all = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) refuse(bytes);
    auto* const begin = static_cast<std::byte*>(all);
    const int file = static_cast<int>(pages.place().descriptor);
    for (std::size_t at = 0; at < bytes; at += kRepeated)
      if (::mmap(begin + at, std::min(kRepeated, bytes - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                 0) == MAP_FAILED) {
        ::munmap(all, bytes);
        refuse(bytes);
      }
    std::memset(begin, 0, std::min(bytes, SharedMemory::kKeyBytes));  // at the file's begin, which is a page's anywhere
    return begin;
  }
  void free(std::byte* p, std::size_t bytes) noexcept override { ::munmap(p, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }

 private:
  [[noreturn]] static void refuse(std::size_t bytes) {
    throw Error(ErrorCode::out_of_memory, "there are no addresses for " + std::to_string(bytes) + " bytes");
  }
};

}  // namespace

MemoryResource& repeated_memory() {
  static auto& memory = *new RepeatedMemory;
  return memory;
}

}  // namespace crimp
