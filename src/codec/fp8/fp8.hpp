// 8-bit floats, e4m3 and e5m2 (OCP 8-bit Floating Point Specification, revision 1.0), with a power of two per block as
// in OCP Microscaling Formats, revision 1.0. Constants and scale, shared by host and device. The byte layout is
// WIRE_FORMAT.md, section 4.15.
#pragma once
#include <bit>
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::fp8 {

struct Format {
  int mantissa, bias;  // bits; of the exponent
  int top_exponent;    // of the largest finite value, whose mantissa is 1.75 in both formats
  std::uint8_t last;   // its code; above are Inf and NaN
  // The last scale byte that is sent: the largest magnitude is 1.75 * 2^113 then, of which 10,240 ranks' have a finite
  // sum. What is larger, of residuals that have grown, has the last code, and the rest waits.
  std::uint8_t most_scale;
};
inline constexpr Format kE4m3{3, 7, 8, 0x7e, 232}, kE5m2{2, 15, 15, 0x7b, 225};

enum class Kind { e4m3, e5m2 };
inline constexpr std::string_view kKindWords[] = {"e4m3", "e5m2"};
inline constexpr Parameter<Kind> kKind{
    {.key = "format",
     .words = kKindWords,
     .help = "e4m3 is finer, e5m2 holds a wider range of magnitudes within a block"}};
inline constexpr Parameter<std::uint32_t> kBlock{
    {.key = "block",
     .default_value = 128,
     .least = 32,
     .most = 10240,
     .step = 32,
     .help = "elements that share a scale; 32 is that of Microscaling Formats"}};

inline constexpr float kMaxMagnitude = 0x1p100f;
inline constexpr std::uint32_t kSmallest =
    27;  // exponent field of 2^-100: a block whose largest magnitude is below has scale 0
inline constexpr std::uint8_t kLastScale = 238;  // that is legal: 2^111, so that every decoded value is finite

// Scale byte of a block: 2^(byte - 127), or 0 for 0. The largest magnitude divided by it is at most the largest code's
// value, but for the last one that is sent.
// `bits`: of the largest magnitude.
CRIMP_HD std::uint8_t scale_byte(std::uint32_t bits, const Format& f) {
  if (bits >> 23 < kSmallest) return 0;
  const std::uint32_t above = (bits & 0x7fffff) > 0x600000;  // mantissa beyond 1.75
  const std::uint32_t scale = (bits >> 23) + above - static_cast<std::uint32_t>(f.top_exponent);
  return static_cast<std::uint8_t>(scale < f.most_scale ? scale : f.most_scale);
}

// The value of a code before the scale.
template <bool e4m3>
CRIMP_HD float value_of(std::uint32_t code) {
  constexpr Format f = e4m3 ? kE4m3 : kE5m2;
  constexpr std::uint32_t one = static_cast<std::uint32_t>(128 - f.bias) << 23;  // the least normal number
  const std::uint32_t low = code & 0x7f, bits = (low << (23 - f.mantissa)) + one - (1u << 23);
  // A subnormal code m is 2^(1 - bias) * m / 2^mantissa: the same mantissa with the exponent of 1 - bias, less its
  // leading one.
  const float magnitude =
      bits < one ? std::bit_cast<float>(bits + (1u << 23)) - std::bit_cast<float>(one) : std::bit_cast<float>(bits);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (code & 0x80) << 24);
}
// x: the value divided by the scale.
template <bool e4m3>
CRIMP_HD std::uint32_t code_of(float x) {
  constexpr Format f = e4m3 ? kE4m3 : kE5m2;
  constexpr int drop = 23 - f.mantissa;
  constexpr std::uint32_t unit = static_cast<std::uint32_t>(127 + 24 - f.bias - f.mantissa)
                                 << 23;  // whose last place is 2^(1 - bias - mantissa)
  const auto all = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t bits = all & 0x7fffffff;
  const std::uint32_t code =
      bits < static_cast<std::uint32_t>(128 - f.bias) << 23
          ? std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + std::bit_cast<float>(unit)) - unit
          : ((bits + (1u << (drop - 1)) - 1 + (bits >> drop & 1)) >> drop) -
                (static_cast<std::uint32_t>(127 - f.bias) << f.mantissa);
  return (code < f.last ? code : f.last) | all >> 31 << 7;
}

}  // namespace crimp::fp8
