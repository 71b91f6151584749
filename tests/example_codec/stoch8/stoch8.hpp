// stoch8, the worked example of "Add a codec": a signed byte per element, levels of the piece's largest magnitude,
// rounded at random. What host code and kernels share is here: parameters, limits, element functions. The byte layout
// is format.md beside this file, for WIRE_FORMAT.md.
#pragma once
#include "codec/parameter.hpp"
#include "codec/uniform/uniform.hpp"
#include "core/host_device.hpp"

namespace crimp::stoch8 {

inline constexpr Parameter<std::uint32_t> kLevels{
    {.key = "levels", .default_value = 127, .least = 1, .most = 127, .step = 1, .help = "levels on each side of zero"}};

inline constexpr std::uint32_t kOffset = 128;  // the byte of 0

// The levels of a piece whose largest magnitude is `largest`; the scale that is sent is 0 where its inverse could
// overflow.
CRIMP_HD float scale_of(float largest) { return largest < uniform::kSmallestScale ? 0.0f : largest; }
CRIMP_HD uniform::Grid grid_of(float scale, std::uint32_t levels) {
  return uniform::symmetric(scale, static_cast<std::int32_t>(levels));
}

CRIMP_HD std::uint32_t code_of(float a, const uniform::Grid& grid, std::uint32_t random) {
  return static_cast<std::uint32_t>(uniform::quantize(a, grid, random)) + kOffset;
}
CRIMP_HD float value_of(std::uint32_t code, const uniform::Grid& grid) {
  return uniform::dequantize(static_cast<std::int32_t>(code) - static_cast<std::int32_t>(kOffset), grid);
}
CRIMP_HD bool legal_code(std::uint32_t code, std::uint32_t levels) {
  return code >= kOffset - levels && code <= kOffset + levels;
}

}  // namespace crimp::stoch8
