// Dynamic 8-bit numbers (Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016): a sign and 7
// bits whose leading zeros count the decades below the largest magnitude of the piece and whose bits behind the leading
// one divide the decade evenly. A piece is M as float32, then one byte per element. Layout: WIRE_FORMAT.md,
// section 4.8.
#pragma once
#include <cfloat>
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::eightbit {

inline constexpr std::uint32_t kDecades = 7, kCodes = 128;
inline constexpr float kMaxMagnitude = 0x1p100f;

// Code 2^k + f (0 <= f < 2^k) stands for the middle of the f-th of 2^k cells of [10^(k-7), 10^(k-6)), 0 for 0 and 127
// for 1, so that the largest magnitude comes back exactly. Both sides of the division are exact in float32.
CRIMP_HD constexpr float level_of(std::uint32_t code) {
  if (code == 0 || code == kCodes - 1) return code == 0 ? 0.0f : 1.0f;
  std::uint32_t k = 0, unit = 20'000'000;
  for (; code >> (k + 1); ++k) unit /= 5;
  return static_cast<float>((2u << k) + 18 * (code - (1u << k)) + 9) / static_cast<float>(unit);
}
struct Table {
  float of[kCodes];
};
constexpr Table make_table() {
  Table table{};
  for (std::uint32_t code = 0; code < kCodes; ++code) table.of[code] = level_of(code);
  return table;
}
inline constexpr Table kTable = make_table();

// Where x lies on the scale of codes is concave and linear in every decade: the least of seven lines.
struct Line {
  float slope, offset;
};
struct Lines {
  Line of[kDecades];
};
constexpr Lines make_lines() {
  Lines lines{};
  double power = 1;
  for (std::uint32_t e = 0; e < kDecades; ++e, power *= 5)
    lines.of[e] = {static_cast<float>(640 * power / 9), static_cast<float>(512.0 / (9 << e))};
  return lines;
}
inline constexpr Lines kLines = make_lines();

// Of the octave with the lower exponent bits i (2^-31 <= x < 2): the lines that are the least at its ends, which is all
// that can be the least in it.
struct OctaveLines {
  struct Of {
    alignas(64) float slope[32], offset[32];
  } left, right;
};
constexpr OctaveLines make_octave_lines() {
  OctaveLines lines{};
  double x = 1;
  for (std::uint32_t i = 32; i-- > 0; x /= 2) {
    const auto least = [](double at) {
      Line line = kLines.of[0];
      for (const Line& other : kLines.of)
        if (static_cast<double>(other.slope) * at + static_cast<double>(other.offset) <
            static_cast<double>(line.slope) * at + static_cast<double>(line.offset))
          line = other;
      return line;
    };
    const Line left = least(x), right = least(2 * x);
    lines.left.slope[i] = left.slope;
    lines.left.offset[i] = left.offset;
    lines.right.slope[i] = right.slope;
    lines.right.offset[i] = right.offset;
  }
  return lines;
}
inline constexpr OctaveLines kOctaveLines = make_octave_lines();

// A piece whose largest magnitude is subnormal is sent as zeros: 1 / M would not be finite.
CRIMP_HD float scale_of(float largest) { return largest >= FLT_MIN ? largest : 0.0f; }
CRIMP_HD float inverse_of(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// x = |a| * inverse_of(scale).
template <std::uint32_t e = 0, std::uint32_t end = kDecades>
CRIMP_HD float least_line(float x) {
  constexpr Line line = kLines.of[e];
  const float y = line.slope * x + line.offset;
  if constexpr (e + 1 == end) return y;
  else {
    const float z = least_line<e + 1, end>(x);
#ifdef __CUDA_ARCH__  // one instruction
    return fminf(z, y);
#else
    return z < y ? z : y;
#endif
  }
}
CRIMP_HD std::uint32_t code_of(float x) {
  const float y = least_line(x);
  return y < 127.0f ? static_cast<std::uint32_t>(y) : 127;
}

}  // namespace crimp::eightbit
