#include <sys/mman.h>

#include <map>
#include <string>
#include <utility>

#include "core/fault.hpp"
#include "crimp/backend.hpp"
#include "crimp/error.hpp"
#include "crimp/residual.hpp"

namespace crimp {

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = fault::fires("alloc") ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw Error(ErrorCode::out_of_memory, std::to_string(bytes) + " bytes of memory were asked for and not given");
  if (bytes >= (std::size_t{2} << 20)) ::madvise(p, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

Memory::~Memory() {
  if (data_) ::munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Arena::reserve(std::size_t bytes) {
  used_ = 0;
  if (bytes > memory_.bytes()) memory_ = Memory(bytes + bytes / 4);
}

std::byte* Arena::take(std::size_t bytes) {
  bytes = padded(bytes);
  if (bytes > memory_.bytes() - used_)
    throw Error(ErrorCode::out_of_memory, "the scratch arena is smaller than the call needs; this is a defect of Crimp");
  std::byte* p = memory_.data() + used_;
  used_ += bytes;
  return p;
}

float* ResidualStore::find(const std::string& key, std::uint64_t count) {
  auto it = tensors_.find(key);
  if (it != tensors_.end() && it->second.count != count) {
    tensors_.erase(it);
    it = tensors_.end();
  }
  if (it == tensors_.end()) it = tensors_.emplace(key, Tensor{Memory(count * sizeof(float)), count}).first;
  return reinterpret_cast<float*>(it->second.memory.data());
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
