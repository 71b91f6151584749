// Natural compression (Horvath et al., MSML 2022): sign and exponent, the mantissa decides at random whether the
// exponent grows. Element functions, shared by host and device. The byte layout is WIRE_FORMAT.md, section 4.7.
#pragma once
#include <bit>
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::natural {

// Code: sign * 128 + e; e = 0 is zero, e in 1..127 is 2^(e - 64).
inline constexpr std::uint32_t kTop = 127, kOffset = 63;      // the float's exponent field is e + 63
inline constexpr std::uint32_t kLeast = (kOffset + 1) << 23;  // bits of 2^-63, the least magnitude but zero
inline constexpr float kMaxMagnitude = 0x1p62f;
inline constexpr float kMinMagnitude = 0x1p-40f;  // of a tensor: what lies below 2^-63, where all rounding is to it or
                                                  // to 0, is then no part of it that counts

CRIMP_HD float value_of(std::uint32_t code) {
  const std::uint32_t e = code & kTop;
  return e == 0 ? 0.0f : std::bit_cast<float>((e + kOffset) << 23 | (code & ~kTop) << 24);
}
CRIMP_HD std::uint32_t code_of(float a, std::uint32_t random) {
  const auto all = std::bit_cast<std::uint32_t>(a);
  const std::uint32_t bits = all & 0x7fffffff;
  // Below 2^-63 the two neighbours are 0 and 2^-63: 2^-63 + size has the mantissa that decides, one exponent higher. It
  // is more than twice the size there, and at most twice from there on, which is the size one exponent higher.
  const auto sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + std::bit_cast<float>(kLeast)),
             twice = bits + (1u << 23), higher = twice < sum ? sum : twice;
  const std::uint32_t e = ((higher + (random << 7) + 64) >> 23) - kOffset - 1;
  return (e < kTop ? e : kTop) | all >> 31 << 7;
}

}  // namespace crimp::natural
