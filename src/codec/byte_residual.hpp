// Residuals kept in a byte an element (CRIMP_RESIDUAL=8bit), as LoCo (Xie et al., arXiv 2407.04480) keeps its errors in
// 8 bits: between calls only, in a call they are floats.
//
// The elements of a tensor are cut into blocks of kBlock, of which the last is shorter; each has a scale, its largest
// magnitude over 127, and an element is an integer from -127 to 127 times that. What a residual loses by this is lost
// for good, so it is rounded to either neighbour by chance, in proportion: on average nothing is lost, where rounding
// to the nearest would forget what is small for ever. Random bits are those of codec/coding/dither.hpp, so that all
// processors round alike.
//
//   bytes: a float32 per block, an int8 per element, zeros up to a multiple of 4
//
// A block whose largest magnitude is below kLeast has scale 0.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "codec/codec.hpp"
#include "memory/workers.hpp"

namespace crimp::byte_residual {

inline constexpr std::uint64_t kBlock = 256;
inline constexpr float kMost = 127.0f, kLeast = 0x1p-100f;
inline constexpr std::uint32_t kStream = 0x42595400;  // of the random bits

constexpr std::uint64_t blocks(std::uint64_t count) { return (count + kBlock - 1) / kBlock; }
constexpr std::uint64_t bytes(std::uint64_t count) { return blocks(count) * sizeof(float) + (count + 3) / 4 * 4; }

// One element: `gain` is 127 over the block's largest magnitude, `bits` 16 random ones.
inline int rounded(float value, float gain, std::uint32_t bits) {
  const float chance = static_cast<float>(bits) * 0x1p-16f + 0x1p-17f;
  const float up = std::floor(value * gain + chance);
  return static_cast<int>(up > kMost ? kMost : up < -kMost ? -kMost : up);
}

// `to` has bytes(count) bytes, aligned to 4: zeros, or what was rounded into them before. Values are finite. The
// counter is that of element 0; another step for each rounding. Workers share the blocks where they are given.
void round(const float* values, std::uint64_t count, const RandomCounter& counter, std::byte* to, Workers* = nullptr);
void expand(const std::byte* from, std::uint64_t count, float* to, Workers* = nullptr);

}  // namespace crimp::byte_residual
