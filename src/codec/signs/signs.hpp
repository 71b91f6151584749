// The 1-bit methods: 1-bit SGD (Seide et al., Interspeech 2014), SignSGD and Signum (Bernstein et al., ICML 2018),
// EF-SignSGD (Karimireddy et al., ICML 2019). A piece is its scales, then one bit per element in a bit plane: set where
// a < 0. Where there are scales 0 and -0 count with the rest; of the codecs that vote they are no votes: a piece that
// has any has a second plane, set where a is 0. Layout: WIRE_FORMAT.md, sections 4.9 to 4.12. Element functions and
// sums, shared by host and device.
#pragma once
#include <cstdint>

#include "codec/coding/bit_plane.hpp"
#include "core/host_device.hpp"

namespace crimp::signs {

inline constexpr std::uint32_t kSumLanes =
    64;  // element i of a piece is added to lane i % 64, in order; the lanes then as a tree
inline constexpr float kMaxMagnitude = 0x1p100f;  // 10,240 of them and their residuals have a finite sum

// A larger mean, of residuals that have grown, or one whose sum overflows is sent as this, and the rest waits: 10,240
// ranks' have a finite sum.
inline constexpr float kMostScale = 0x1p114f;

enum class Scales { none, mean, class_means };  // as many float32 as their number

// What a set bit and a clear one decode to: -m0 and +m1.
struct Levels {
  float m0, m1;
};

CRIMP_HD float decode(bool negative, const Levels& levels) { return negative ? -levels.m0 : levels.m1; }
CRIMP_HD float vote(bool negative, bool zero) { return zero ? 0.0f : negative ? -1.0f : 1.0f; }

// The sum of the lanes, which are overwritten: l += l + 32, then + 16, ... + 1.
CRIMP_HD float tree_sum(float* lanes) {
  for (std::uint32_t width = kSumLanes / 2; width > 0; width /= 2)
    for (std::uint32_t l = 0; l < width; ++l) lanes[l] = lanes[l] + lanes[l + width];
  return lanes[0];
}

CRIMP_HD float scale_of(float sum, std::uint32_t count) {
  const float mean = sum / static_cast<float>(count);
  return mean > kMostScale ? kMostScale : mean;
}

// 1-bit SGD: the mean magnitudes of the negative elements and of the rest; 0 where there are none.
CRIMP_HD Levels class_means(float negatives, float rest, std::uint32_t negative_count, std::uint32_t count) {
  return {negative_count ? scale_of(-negatives, negative_count) : 0.0f,
          negative_count < count ? scale_of(rest, count - negative_count) : 0.0f};
}

// EF-SignSGD: the mean of |a|.
CRIMP_HD Levels mean_magnitude(float negatives, float rest, std::uint32_t count) {
  const float mean = scale_of(rest - negatives, count);
  return {mean, mean};
}

// SignSGD's majority, times the ranks, so that a mean over them is -1, 0 (a tie) or +1.
CRIMP_HD float majority(float sum, float ranks) { return sum > 0.0f ? ranks : sum < 0.0f ? -ranks : 0.0f; }

}  // namespace crimp::signs
