// Memory of devices that the ranks of a node share: each has a slot in its own device's, which all of them read and
// write, so that what they add or hand one another needs no way through the host.
//
// One call's at a time: not thread-safe. It does not depend on a Backend's life. What throws: Error{device_failed},
// Error{out_of_memory}.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace crimp {

class SharedSlots {
 public:
  // How a slot is found by another process of the machine, which is sent it as bytes.
  using Handle = std::array<std::byte, 128>;
  virtual ~SharedSlots() = default;
  virtual Handle handle() const = 0;  // of this rank's
  // Of all ranks, in their order, this one's own among them. Throws where one is out of reach: devices without a way
  // between them, containers apart.
  virtual void open(std::span<const Handle>) = 0;
  virtual float* own() const = 0;                   // this rank's, aligned to 256 bytes
  virtual float* slot(std::size_t rank) const = 0;  // once they are open

  // Enqueued, one behind the other. `to` and `from` are any memory that this rank's device reaches.
  virtual void copy(float* to, const float* from, std::uint64_t count) = 0;
  // to[i] = from[0][i] + from[1][i] + ..., added in that order. `to` may be the first of them; all are aligned to 16
  // bytes.
  virtual void add(float* to, std::span<const float* const> from, std::uint64_t count) = 0;
  virtual void finish() = 0;  // all is done, and other devices see it
};

}  // namespace crimp
