// THC (Li et al., NSDI 2024): rotated blocks, norms per block, table values that add up without being decoded.
// Constants, layout and element functions, shared by host and device. The byte layout is WIRE_FORMAT.md, section 4.23.
#pragma once
#include <cstdint>

#include "codec/coding/dither.hpp"
#include "codec/parameter.hpp"
#include "core/host_device.hpp"
#include "core/types.hpp"

namespace crimp::thc {

inline constexpr std::uint32_t kBlock = 1024,
                               kLeastBlock = 128;  // a tail is padded with zeros to a power of two in between
inline constexpr std::uint32_t kBlocks = kPieceElements / kBlock;
inline constexpr std::uint32_t kMostLevels = 16, kMostGranularity = 62;
inline constexpr Parameter<std::uint32_t> kBits{
    {.key = "bits", .default_value = 4, .least = 2, .most = 4, .step = 1, .help = "bits of a coordinate"}};
inline constexpr Parameter<std::uint32_t> kGranularity{
    {.key = "g",
     .default_value = 30,
     .least = 3,
     .most = kMostGranularity,
     .step = 1,
     .also = "at least 2^bits-1, above 31 even",
     .help = "granularity: table values are 0..g, and a byte sums 255/g ranks"}};
inline constexpr Parameter<std::uint32_t> kClipped{
    {.key = "clip",
     .default_value = 32,
     .least = 4,
     .most = 4096,
     .step = 1,
     .help =
         "one coordinate in so many is clipped: 1/p of the paper. Few levels over a wide range diverge with a residual: bits=2 has none by default with g=4 from 70 on, with g=3, 6 and 9 from some 1850 on"}};
inline constexpr std::uint32_t kOne = 65536;  // of the stochastic rounding
inline constexpr float kMaxMagnitude = 0x1p100f;
// Of Tables::error. A residual has so much of the squares of what was encoded, its own among them: from 1 on it grows.
inline constexpr double kMostError = 0.9;
inline constexpr float kLeastNorm = 0x1p-100f,
                       kMostNorm = 0x1p120f;  // a smaller norm is sent as 0, the block waits in the residual
// Squares are summed of values times kUp where the largest is below kSmall, times kDown where it is at least kLarge.
inline constexpr float kSmall = 0x1p-40f, kLarge = 0x1p50f, kUp = 0x1p80f, kDown = 0x1p-80f;
inline constexpr std::uint32_t kSumLanes =
    64;  // element i is added to lane i % 64, then lanes j and j + 32, j + 16, ..., j + 1

// What bits, g and the clipped share p define. Made at start-up with basic arithmetic alone, so the same on every
// machine.
struct Tables {
  std::uint32_t bits, levels, granularity, clip;  // clip: 1 / p
  float limit;                                    // t_p: P(|Z| > t_p) = p for a normal Z
  double error;                     // E |a - d|^2 / |a|^2 of normal values: the rounding's variance and what is cut off
  std::uint8_t value[kMostLevels];  // T: strictly increasing, T[0] = 0, T[levels - 1] = g, T[i] + T[levels-1-i] = g
  std::int8_t centred[kMostLevels];  // T - g/2, of an odd g twice that
  float to_grid;                     // g / (2 t_p): u = z * to_grid + g/2
  float unit;                        // what a unit of `centred` is worth: 2 t_p / g, of an odd g half of it
  // u in [k, k+1) to kOne times the index: slope[k] * u + offset[k], linear from T[i] to T[i+1].
  alignas(64) float slope[64], offset[64];
  // The same by level: i of k, and what all k of an i have in common.
  alignas(64) std::uint8_t level[64];
  alignas(64) float level_slope[kMostLevels], level_offset[kMostLevels];
};
// bits 2..4; granularity at least levels - 1 and at most kMostGranularity, odd ones at most 31 (sums of 1024 `centred`
// fit 16 bits); clip 4..4096.
Tables make_tables(std::uint32_t bits, std::uint32_t granularity, std::uint32_t clip);
double normal_quantile(double p);  // t with P(|Z| > t) = p, 1e-5 <= p < 1

// What the encoder makes of a piece before it quantises: per block H D a, not scaled, and the norm of a. values +
// residual (may be null).
void rotate(const float* values, const float* residual, std::uint64_t count, const RandomCounter&, float* rotated,
            float* norms);

// sums[i] += T[index of coordinate i], and what sums of indices over `ranks` ranks decode to: Homomorphic's add and
// decode.
void add_indices(const Tables&, const std::uint8_t* indices, std::uint64_t coordinates, std::uint16_t* sums);
void decode_sums(const Tables&, const std::uint16_t* sums, const float* norms, int ranks, std::uint64_t count,
                 const RandomCounter&, float* out);

CRIMP_HD std::uint32_t blocks(std::uint64_t count) { return static_cast<std::uint32_t>((count + kBlock - 1) / kBlock); }
// Coordinates of a block that holds `count` elements.
CRIMP_HD std::uint32_t dimension(std::uint64_t count) {
  std::uint32_t d = kLeastBlock;
  while (d < count && d < kBlock) d *= 2;
  return d;
}
// Coordinates of a piece: those of its blocks.
CRIMP_HD std::uint64_t coordinates(std::uint64_t count) {
  const std::uint64_t rest = count % kBlock;
  return count / kBlock * kBlock + (rest ? dimension(rest) : 0);
}
CRIMP_HD std::uint64_t index_bytes(std::uint64_t count, std::uint32_t bits) { return coordinates(count) * bits / 8; }

// The word of which bit 8 (block % 2) + element / 128 says that an element of the block is negated: D of the rotation H
// D.
CRIMP_HD std::uint32_t sign_word(const RandomCounter& piece, std::uint32_t block, std::uint32_t element) {
  return dither::bits16({piece.element, piece.step, 0}, dither::kShared,
                        block / 2 * dither::kTile + element % dither::kTile);
}
CRIMP_HD std::uint32_t sign_bit(std::uint32_t block, std::uint32_t element) {
  return block % 2 * 8 + element / dither::kTile;
}

// scale = to_grid / norm. random: 16 bits. slope and offset: of the tables.
CRIMP_HD std::uint32_t quantize(const float* slope, const float* offset, std::uint32_t granularity, float y,
                                float scale, std::uint32_t random) {
  const float g = static_cast<float>(granularity);
  float u = y * scale + 0.5f * g;
  u = u > 0.0f ? u : 0.0f;
  u = u < g ? u : g;
  const std::uint32_t k = static_cast<std::uint32_t>(u);
  return (static_cast<std::uint32_t>(slope[k] * u + offset[k]) + random) / kOne;
}
CRIMP_HD std::uint32_t quantize(const Tables& t, float y, float scale, std::uint32_t random) {
  return quantize(t.slope, t.offset, t.granularity, y, scale, random);
}

}  // namespace crimp::thc
