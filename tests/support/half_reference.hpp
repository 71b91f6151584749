// float16 and bfloat16 by their definition, in double arithmetic; nothing shared with src/core/half.hpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

namespace crimp::test {

struct SmallFormat {
  int exponent_bits, mantissa_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint16_t infinity() const { return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits); }
  std::uint16_t sign_bit() const { return static_cast<std::uint16_t>(1 << (exponent_bits + mantissa_bits)); }
  bool is_nan(std::uint16_t h) const { return (h & ~sign_bit() & 0xffff) > infinity(); }

  double value(std::uint16_t h) const {
    const double sign = h & sign_bit() ? -1.0 : 1.0;
    const int exponent = (h >> mantissa_bits) & ((1 << exponent_bits) - 1), mantissa = h & ((1 << mantissa_bits) - 1);
    if (exponent == (1 << exponent_bits) - 1)
      return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias() - mantissa_bits);
  }

  // Nearest even, subnormals kept, overflow to infinity. Not for NaN.
  std::uint16_t nearest(double x) const {
    const std::uint16_t sign = std::signbit(x) ? sign_bit() : std::uint16_t{0};
    const double magnitude = std::fabs(x);
    if (std::isinf(magnitude)) return sign | infinity();
    if (magnitude == 0) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);                                     // magnitude in [2^(exponent - 1), 2^exponent)
    const int unit = std::max(exponent - 1, 1 - bias()) - mantissa_bits;  // of the last place
    const double units = std::ldexp(magnitude, -unit);                    // exact; below 2^(mantissa_bits + 1)
    double whole = std::floor(units);
    const double rest = units - whole;
    if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1)) ++whole;
    // As a bit pattern the formats count upwards without gaps, so a carry needs no care.
    const std::uint32_t lowest = unit == 1 - bias() - mantissa_bits
                                     ? 0
                                     : static_cast<std::uint32_t>(unit + bias() + mantissa_bits - 1) << mantissa_bits;
    const std::uint32_t bits = lowest + static_cast<std::uint32_t>(whole);
    return static_cast<std::uint16_t>(sign | (bits >= infinity() ? infinity() : bits));
  }
};

inline constexpr SmallFormat kHalf{5, 10}, kBfloat{8, 7};

}  // namespace crimp::test
