// INCEPTIONN (Li et al., MICRO 2018): the size of a value decides how many of its bits are sent. With the error bound
// 2^-E and h = ceil(E / 2): nothing below 2^-E, 8 bits below 2^-h, 16 bits below 1, else the float itself. Layout:
// WIRE_FORMAT.md, section 4.13.
#pragma once
#include <bit>
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::inceptionn {

enum Class : std::uint32_t { kZero, kByte, kHalf, kFloat };
inline constexpr Parameter<int> kLog2Bound{{.key = "log2_bound",
                                            .default_value = -10,
                                            .least = -14,
                                            .most = -2,
                                            .step = 1,  // below -14 a unit of a class would exceed the bound
                                            .help = "|a - d| <= 2^log2_bound"}};
inline constexpr float kMaxMagnitude = 0x1p100f;
inline constexpr float kHalfUnit = 0x1p-15f;  // of a 16-bit value

struct Limits {
  float zero, byte;      // the least magnitudes of the classes kByte and kHalf: 2^-E and 2^-h
  float byte_unit;       // of an 8-bit value: 2^-(h + 7)
  float bytes_per_unit;  // its inverse
};

CRIMP_HD float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}
CRIMP_HD Limits limits_of(int bound_exponent) {
  const int h = (bound_exponent + 1) / 2;
  return {power_of_two(-bound_exponent), power_of_two(-h), power_of_two(-h - 7), power_of_two(h + 7)};
}

CRIMP_HD std::uint32_t class_of(float magnitude, const Limits& limits) {
  return (magnitude >= limits.zero) + (magnitude >= limits.byte) + (magnitude >= 1.0f);
}

// Units to the nearest, at most the largest that `bits` hold: off by one unit there, by half a unit elsewhere; the sign
// above them. No branches.
CRIMP_HD std::uint32_t code_of(float a, float magnitude, float per_unit, std::uint32_t bits) {
  const float units = magnitude * per_unit + 0.5f, most = static_cast<float>((1 << bits) - 1);
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(units < most ? units : most)) |
         std::bit_cast<std::uint32_t>(a) >> 31 << bits;
}
CRIMP_HD float value_of(std::uint32_t code, float unit, std::uint32_t bits) {
  const float magnitude = static_cast<float>(static_cast<std::int32_t>(code & ((1u << bits) - 1))) * unit;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | code >> bits << 31);
}
CRIMP_HD std::uint32_t byte_code(float a, float magnitude, const Limits& limits) {
  return code_of(a, magnitude, limits.bytes_per_unit, 7);
}
CRIMP_HD std::uint32_t half_code(float a, float magnitude) { return code_of(a, magnitude, 0x1p15f, 15); }

// What an element of class c decodes to, given the codes that it would have in each.
CRIMP_HD float decode(std::uint32_t c, std::uint32_t byte, std::uint32_t half, float whole, const Limits& limits) {
  const auto only = [c](Class of, float value) { return std::bit_cast<std::uint32_t>(value) & (0u - (c == of)); };
  return std::bit_cast<float>(only(kByte, value_of(byte, limits.byte_unit, 7)) |
                              only(kHalf, value_of(half, kHalfUnit, 15)) | only(kFloat, whole));
}

}  // namespace crimp::inceptionn
