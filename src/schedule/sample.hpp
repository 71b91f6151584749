// 512 values of a buffer, in 128 clusters of 4 neighbours, at places that are a function of the buffer's length; of a
// short buffer all of them.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace crimp {

class Sample {
 public:
  static constexpr std::uint64_t kClusters = 128, kClusterElements = 4, kElements = kClusters * kClusterElements;
  // What lies at the ends of a buffer is no part of it, but for short ones.
  static constexpr std::uint64_t kEnd = 16;
  static std::uint64_t end_of(std::uint64_t count) { return count >= 16 * kEnd ? kEnd : 0; }
  // Copies elements [first, first + count) of the buffer as float32.
  using Read = std::function<void(std::uint64_t first, std::uint64_t count, float* to)>;

  Sample() = default;
  // `reads`: how many runs of neighbours it may be read in, a divisor of kClusters; where reading is slow (device
  // memory) few.
  Sample(std::uint64_t count, std::uint64_t reads, const Read&);

  std::span<const float> values() const { return {values_.data(), size_}; }

 private:
  std::array<float, kElements> values_{};
  std::size_t size_ = 0;
};

}  // namespace crimp
