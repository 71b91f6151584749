// float16 and bfloat16 conversion on bits, round to nearest even, one element. The array versions are in convert.hpp.
//
// The subnormal paths use one float addition each, exact in round-to-nearest (the float environment that
// FloatEnvironment sets).
#pragma once
#include <bit>
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp {

// Subnormals kept; |x| >= 65520 becomes infinity; NaN stays NaN, quieted, with the top ten payload bits (as F16C does).
CRIMP_HD std::uint16_t half_from_float(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  std::uint32_t u = bits & 0x7fffffff;
  if (u > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | ((u >> 13) & 0x3ff));
  if (u >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (u < 0x38800000) {  // below 2^-14: adding 0.5 shifts the mantissa to the half's subnormal position and rounds it
    const float shifted = std::bit_cast<float>(u) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  u += 0xc8000fff + ((u >> 13) & 1);  // rebias the exponent by -112, round half to even
  return static_cast<std::uint16_t>(sign | (u >> 13));
}

CRIMP_HD float float_from_half(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  std::uint32_t u = static_cast<std::uint32_t>(h & 0x7fff) << 13;
  const std::uint32_t exponent = u & 0x0f800000;
  u += 112u << 23;
  if (exponent == 0x0f800000) {
    u += 112u << 23;
    if (u & 0x007fffff) u |= 0x00400000;
  } else if (exponent == 0) {
    u = std::bit_cast<std::uint32_t>(std::bit_cast<float>(u + (1u << 23)) - std::bit_cast<float>(113u << 23));
  }
  return std::bit_cast<float>(u | sign);
}

CRIMP_HD std::uint16_t bfloat_from_float(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((u >> 16) | 0x40);
  return static_cast<std::uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

CRIMP_HD float float_from_bfloat(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }

}  // namespace crimp
