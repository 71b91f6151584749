// Uniform levels with stochastic rounding: QSGD (Alistarh et al., NeurIPS 2017), TernGrad (Wen et al., NeurIPS 2017)
// and CGX's max-min quantiser (Markov et al., Middleware 2022) are one operation, q = floor((a - base) / step + u), on
// different grids. Layout and arithmetic, shared by host and device. The byte layouts are WIRE_FORMAT.md,
// sections 4.5, 4.6 and 4.14.
#pragma once
#include <cmath>
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::uniform {

inline constexpr float kMaxMagnitude = 0x1p50f;  // of QSGD and TernGrad: squares and their sums stay finite
inline constexpr float kSmallestScale =
    0x1p-60f;  // a norm or S below this is sent as 0: 1 / scale stays finite, squares above 0
inline constexpr float kMostNorm = 0x1p63f;  // a larger one, of a residual that has grown, is sent as this: what is
                                             // beyond is sent as the highest level, and the rest waits
inline constexpr float kMinMagnitude =
    0x1p-40f;  // of a tensor: blocks that are sent as 0 are then no part of it that counts
inline constexpr float kMaxReach = 0x1p100f, kSmallestReach = 0x1p-100f;  // likewise of max-min
inline constexpr std::uint32_t kMaxLevels = 32767;                        // fixed point with 16 fractional bits fits 32
inline constexpr std::uint32_t kSumLanes = 64;

enum class Rounding { stochastic, nearest, symmetric };  // symmetric: stochastic with base 0
// maxmin
inline constexpr Parameter<int> kBits{
    {.key = "bits", .default_value = 4, .least = 2, .most = 8, .step = 1, .help = "of a value's code"}};
inline constexpr Parameter<std::uint32_t> kBlock{{.key = "block",
                                                  .default_value = 512,
                                                  .least = 128,
                                                  .most = 10240,
                                                  .step = 128,
                                                  .help = "elements that share min and step"}};
inline constexpr std::string_view kRoundingWords[] = {"stochastic", "nearest"};
inline constexpr Parameter<Rounding> kRounding{
    {.key = "rounding",
     .words = kRoundingWords,
     .help = "stochastic is unbiased (u uniform in [0, 1)), nearest has u = 1/2"}};
// qsgd
inline constexpr Parameter<int> kLevels{{.key = "s",
                                         .default_value = 127,
                                         .least = 1,
                                         .most = kMaxLevels,
                                         .step = 1,
                                         .help = "levels on each side of zero"}};
inline constexpr Parameter<std::uint32_t> kBucket{
    {.key = "bucket",
     .default_value = 512,
     .least = 128,
     .most = 10240,
     .step = 128,
     .help = "elements that share a norm: the noise of a block grows with its norm"}};
// terngrad
inline constexpr Parameter<float> kDeviations{{.key = "clip",
                                               .default_value = 2.5,
                                               .least = 1e-6,
                                               .most = 1e6,
                                               .help = "in standard deviations; a large one never clips"}};

// Values base + q * step, q in [lowest, highest]; inverse = 65536 / step, or 0 where step is 0.
struct Grid {
  float base, step, inverse;
  std::int32_t lowest, highest;
};

// Elements that share a grid, a part of a piece that begins at a multiple of 128; codes are q + offset in `bits` bits.
struct Block {
  const float *values, *in;  // a = values + in; in may be null
  float* out;                // the new residual, may be null
  std::uint64_t count;
  Grid grid;
  int bits, offset;
  std::uint32_t first_tile;  // index in the piece
  std::uint32_t ahead = 0;   // elements to read ahead by, where the statistics of the next block would wait for memory
};
struct Extent {
  float low, high;
};

// bits: 0..65535 at random, or 32768 for the nearest level (of two as near: the upper one).
CRIMP_HD std::int32_t quantize(float a, const Grid& g, std::uint32_t bits) {
  const float x = rintf((a - g.base) * g.inverse);
  const float low = static_cast<float>(g.lowest * 65536), high = static_cast<float>(g.highest * 65536);
  return (static_cast<std::int32_t>(x < low ? low : x > high ? high : x) + static_cast<std::int32_t>(bits)) >> 16;
}
CRIMP_HD float dequantize(std::int32_t q, const Grid& g) { return g.base + static_cast<float>(q) * g.step; }

// No level is farther out than the highest; NaN is not finite either.
CRIMP_HD bool finite(const Grid& g) { return fabsf(dequantize(g.highest, g)) <= 0x1.fffffep127f; }

// Levels -s..s of a scale: QSGD's norm, TernGrad's S with s = 1.
CRIMP_HD Grid symmetric(float scale, std::int32_t s) {
  const float levels = static_cast<float>(s);
  return {0.0f, scale / levels, scale > 0.0f ? levels * 65536.0f / scale : 0.0f, -s, s};
}
CRIMP_HD Grid between(float low, float high, std::int32_t bits) {
  const std::int32_t top = (1 << bits) - 1;
  const float range = high - low, levels = static_cast<float>(top);
  if (!(range >= kSmallestReach)) return {low, 0.0f, 0.0f, 0, top};
  return {low, range / levels, levels * 65536.0f / range, 0, top};
}

// Bits of a code of levels -s..s: ceil(log2(2 s + 1)), at least 2.
CRIMP_HD std::uint32_t code_bits(std::int32_t s) {
  std::uint32_t bits = 2;
  while ((1 << bits) < 2 * s + 1) ++bits;
  return bits;
}

// Adds 64 partial sums, lane i's being that of the elements i, i + 64, ..., in this order on every machine.
CRIMP_HD float tree_sum(float* lanes) {
  for (std::uint32_t width = kSumLanes / 2; width > 0; width /= 2)
    for (std::uint32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

struct Moments {
  float sum, squares, largest;  // largest: max |a|
};
CRIMP_HD float norm_of(const Moments& m) {
  const float norm = sqrtf(m.squares);
  return norm < kSmallestScale ? 0.0f : norm < kMostNorm ? norm : kMostNorm;
}
// min(max |a|, c * max(sigma, |mean|)): sigma is the population's. A piece whose mean outweighs it (a constant, a
// single element) would be clipped away by c * sigma alone.
CRIMP_HD float clipped_peak(const Moments& m, std::uint64_t n, float c) {
  const float mean = m.sum / static_cast<float>(n), variance = m.squares / static_cast<float>(n) - mean * mean;
  const float sigma = variance > 0.0f ? sqrtf(variance) : 0.0f, limit = c * fmaxf(sigma, fabsf(mean));
  const float peak = m.largest < limit ? m.largest : limit;
  return peak < kSmallestScale ? 0.0f : peak;
}

}  // namespace crimp::uniform
