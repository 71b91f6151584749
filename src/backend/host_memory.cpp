#include <sys/mman.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "core/fault.hpp"
#include "crimp/error.hpp"
#include "crimp/memory.hpp"
#include "crimp/residual.hpp"

namespace crimp {

namespace {

class HostMemory final : public Allocator {
 public:
  std::byte* allocate(std::size_t bytes) override {
    void* p = fault::fires("alloc") ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw Error(ErrorCode::out_of_memory, std::to_string(bytes) + " bytes of memory were asked for and not given");
    if (bytes >= (std::size_t{2} << 20)) ::madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte*>(p);
  }
  void free(std::byte* p, std::size_t bytes) noexcept override { ::munmap(p, bytes); }
  void read(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }
};

// The content of `from` in memory of another kind.
Memory moved(const Memory& from, Allocator& to) {
  Memory made(from.bytes(), to);
  if (from.allocator() == &host_memory()) {
    to.write(made.data(), from.data(), from.bytes());
  } else {
    const Memory between(&to == &host_memory() ? 0 : from.bytes());
    std::byte* const host = between.data() ? between.data() : made.data();
    from.allocator()->read(host, from.data(), from.bytes());
    if (between.data()) to.write(made.data(), host, from.bytes());
  }
  return made;
}

}  // namespace

Allocator& host_memory() {
  static auto& memory = *new HostMemory;
  return memory;
}

Memory::Memory(std::size_t bytes, Allocator& allocator) : bytes_(bytes), allocator_(&allocator) {
  if (bytes) data_ = allocator.allocate(bytes);
}

Memory::~Memory() {
  if (data_) allocator_->free(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), allocator_(other.allocator_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(allocator_, other.allocator_);
  return *this;
}

void Arena::reserve(std::size_t bytes) {
  used_ = 0;
  if (bytes > memory_.bytes()) memory_ = Memory(bytes + bytes / 4, *allocator_);
}

std::byte* Arena::take(std::size_t bytes) {
  bytes = padded(bytes);
  if (bytes > memory_.bytes() - used_)
    throw Error(ErrorCode::out_of_memory, "the scratch arena is smaller than the call needs; this is a defect of Crimp");
  std::byte* p = memory_.data() + used_;
  used_ += bytes;
  return p;
}

float* ResidualStore::find(const std::string& key, std::uint64_t count, Allocator& memory) {
  auto it = tensors_.find(key);
  if (it != tensors_.end() && it->second.count != count) {
    tensors_.erase(it);
    it = tensors_.end();
  }
  if (it == tensors_.end()) {
    new_.push_back(key);
    it = tensors_.emplace(key, Tensor{Memory(count * sizeof(float), memory), count}).first;
  }
  Memory& found = it->second.memory;
  if (found.allocator() != &memory) found = moved(found, memory);
  return reinterpret_cast<float*>(found.data());
}

void ResidualStore::drop_new() {
  for (const std::string& key : new_) tensors_.erase(key);
  new_.clear();
}

void ResidualStore::forget(std::string_view prefix) {
  std::erase_if(tensors_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
}

std::uint64_t ResidualStore::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [key, tensor] : tensors_) sum += tensor.memory.bytes();
  return sum;
}

}  // namespace crimp
