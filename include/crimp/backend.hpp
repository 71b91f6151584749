// Memory of one place. Here the host; the CUDA place will stand beside it (plugin, src/backend/).
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp {

// Zeroed pages of its own, on huge pages where the system gives them (residual traffic is a fifth faster on them). Move only.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes);  // throws Error{out_of_memory} that says how many bytes
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Scratch of one call: reserve once, take parts, reset. What was taken is not zeroed and is valid until the next reserve or reset.
// Not thread-safe.
class Arena {
 public:
  void reserve(std::size_t bytes);  // throws Error{out_of_memory}; keeps what it has on failure
  void reset() { used_ = 0; }
  std::byte* take(std::size_t bytes);  // 64-byte aligned; throws Error{out_of_memory} beyond what was reserved
  static std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  Memory memory_;
  std::size_t used_ = 0;
};

}  // namespace crimp
