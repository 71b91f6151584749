// A few values of a call's buffer, to tell whether two calls carry the same tensor: gradients of one tensor resemble each other from step to step, those
// of two tensors do not.
#pragma once
#include <array>
#include <cstdint>
#include <functional>

namespace crimp {

// 128 clusters of 4 neighbours, at places that are a function of the buffer's length.
class Sketch {
 public:
  static constexpr std::uint64_t kClusters = 128, kClusterElements = 4, kElements = kClusters * kClusterElements;
  // Copies elements [first, first + count) of the call as float32.
  using Read = std::function<void(std::uint64_t first, std::uint64_t count, float* to)>;
  Sketch() = default;
  // `reads`: how many runs of neighbours it may be read in, a divisor of kClusters; where reading is slow (device memory) few.
  Sketch(std::uint64_t count, std::uint64_t reads, const Read&);

  // Whether it says anything: neither all zero nor with NaN or Inf.
  bool usable() const { return norm_ > 0; }

 private:
  friend struct Likeness;
  std::array<float, kElements> values_{};
  double norm_ = 0;  // square of the values' norm; 0 where not usable
};

// How alike two sketches are. With x, y the values: likeness 2<x,y> / (|x|^2 + |y|^2), which is 1 where they are equal, near 0 where they are unrelated or
// of very different size, negative where they are opposed. `variance`: of the likeness if every cluster's sign were a coin's, the hypothesis that the
// tensors have nothing to do with each other.
struct Likeness {
  double likeness = 0, variance = 0;
  bool known = false;  // both are usable
  bool alike = false;  // most clusters agree in sign, beyond chance: whatever the vectors' sizes, and outliers in them
  Likeness() = default;
  Likeness(const Sketch& x, const Sketch& y);
};

}  // namespace crimp
