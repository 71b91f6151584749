// Memory and the scratch of calls. Where it lies is an MemoryResource's business: host memory, device memory, pinned
// memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/values.hpp"

namespace crimp {

// A kind of memory. Lives as long as the process: memory is returned at any time until exit. Thread-safe.
class MemoryResource {
 public:
  // Zeroed, aligned to 256 bytes. Throws Error{out_of_memory} that says how many bytes.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte*, std::size_t bytes) noexcept = 0;
  // Between this memory and the host's, complete on return. Throws Error{device_failed}.
  virtual void read(void* host, const void* from, std::size_t bytes) = 0;
  virtual void write(void* to, const void* host, std::size_t bytes) = 0;
  // Of what was allocated and not touched yet only small parts will be: nothing else is to take memory.
  virtual void expect_few(std::byte*, std::size_t /*bytes*/) noexcept {}

 protected:
  ~MemoryResource() = default;
};

// Pages of their own, on huge pages where the system gives them (residual traffic is a fifth faster on them).
MemoryResource& host_memory();

// Values of any type, as float32; of others than that throws std::bad_alloc, too.
void read_floats(MemoryResource&, ConstValues, std::span<float> to);

// Move only.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes, MemoryResource& = host_memory());  // throws Error{out_of_memory}
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  MemoryResource* resource() const { return resource_; }  // null where empty

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryResource* resource_ = nullptr;
};

// Scratch of one call: reserve once, take parts, reset. What was taken is not zeroed and is valid until the next
// reserve or reset. Not thread-safe.
class Arena {
 public:
  explicit Arena(MemoryResource& resource = host_memory()) : resource_(&resource) {}
  void reserve(std::size_t bytes);  // throws Error{out_of_memory}; host memory that it has stays then
  void reset() { used_ = 0; }
  std::byte* take(std::size_t bytes);  // 64-byte aligned; throws Error{out_of_memory} beyond what was reserved
  static std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::byte* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  MemoryResource* resource_;
  Memory memory_;
  std::size_t used_ = 0;
};

}  // namespace crimp
