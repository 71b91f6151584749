#include <sys/mman.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/convert.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "memory/memory_resource.hpp"

namespace crimp {

namespace {

class HostMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) override {
    void* p = fault::fires("alloc")
                  ? MAP_FAILED
                  : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      throw Error(ErrorCode::out_of_memory, std::to_string(bytes) + " bytes of memory were asked for and not given");
    if (bytes >= (std::size_t{2} << 20)) ::madvise(p, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte*>(p);
  }
  void free(std::byte* p, std::size_t bytes) noexcept override { ::munmap(p, bytes); }
  void expect_few(std::byte* p, std::size_t bytes) noexcept override { ::madvise(p, bytes, MADV_NOHUGEPAGE); }
  void read(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }
};

}  // namespace

MemoryResource& host_memory() {
  static auto& memory = *new HostMemory;
  return memory;
}

void read_floats(MemoryResource& memory, ConstValues values, std::span<float> to) {
  if (values.type == Dtype::f32) return memory.read(to.data(), values.at, to.size_bytes());
  std::vector<std::byte> raw(to.size() * size_of(values.type));
  memory.read(raw.data(), values.at, raw.size());
  widen(values.type, raw.data(), to.data(), to.size());
}

Memory::Memory(std::size_t bytes, MemoryResource& resource) : bytes_(bytes), resource_(&resource) {
  if (bytes) data_ = resource.allocate(bytes);
}

Memory::~Memory() {
  if (data_) resource_->free(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), resource_(other.resource_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(resource_, other.resource_);
  return *this;
}

void Arena::reserve(std::size_t bytes) {
  used_ = 0;
  if (bytes <= memory_.bytes()) return;
  if (resource_ != &host_memory()) memory_ = {};  // both at once may be more than a device has
  memory_ = Memory(bytes + bytes / 4, *resource_);
}

std::byte* Arena::take(std::size_t bytes) {
  bytes = padded(bytes);
  if (bytes > memory_.bytes() - used_)
    throw Error(ErrorCode::out_of_memory,
                "the scratch arena is smaller than the call needs; this is a defect of Crimp");
  std::byte* p = memory_.data() + used_;
  used_ += bytes;
  return p;
}

}  // namespace crimp
