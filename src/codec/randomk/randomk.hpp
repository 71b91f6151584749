// Random-k with a seed that all ranks share: of each of k strata of a piece one element is sent, and its place is
// drawn, not sent. WIRE_FORMAT.md, section 4.19.
#pragma once
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::randomk {

inline constexpr Parameter<float> kRatio{
    {.key = "ratio",
     .default_value = 0.01,
     .least = 0,
     .most = 1,
     .above_least = true,
     .help = "share of the elements that is sent: max(1, round(ratio * elements)) of each 10240"}};
inline constexpr auto kUnbiased = flag_parameter(
    "scale", false, "1 multiplies by the width of the stratum (about 1 / ratio): unbiased, without memory");

// Of a scaled value, of a residual that has grown: the rest waits. 10,240 ranks' have a finite sum, and the largest
// legal value's product with the largest width is below.
inline constexpr float kMostSent = 0x1p114f;
CRIMP_HD float scaled(float a, std::uint32_t width) {
  const float all = a * static_cast<float>(width);
  return all < -kMostSent ? -kMostSent : all > kMostSent ? kMostSent : all;
}

// Stratum j of k in a piece of n elements: [begin(j), begin(j + 1)).
CRIMP_HD std::uint32_t begin(std::uint32_t j, std::uint32_t n, std::uint32_t k) {
  return static_cast<std::uint32_t>(std::uint64_t{j} * n / k);
}
CRIMP_HD std::uint32_t width(std::uint32_t j, std::uint32_t n, std::uint32_t k) {
  return begin(j + 1, n, k) - begin(j, n, k);
}
// Its element for the random word whose low half are the 16 bits of element 2j of the piece, and whose high half those
// of element 2j + 1.
CRIMP_HD std::uint32_t element(std::uint32_t j, std::uint32_t n, std::uint32_t k, std::uint32_t word) {
  return begin(j, n, k) + static_cast<std::uint32_t>(std::uint64_t{width(j, n, k)} * word >> 32);
}

}  // namespace crimp::randomk
