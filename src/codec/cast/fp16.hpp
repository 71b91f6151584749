// fp16: float16 with a power of two per block, so that no float is too small or too large for it. Constants and scale,
// shared by host and device. The byte layout is WIRE_FORMAT.md, section 4.2. Sparse pieces of binary16 values have such
// a scale, too (section 4.18).
#pragma once
#include <cstdint>

#include "core/host_device.hpp"
#include "core/types.hpp"

namespace crimp::fp16 {

inline constexpr std::uint32_t kBlock = 1280,
                               kBlocks = 8;  // elements that share a scale; scale bytes of a piece, however short
static_assert(kBlock * kBlocks == kPieceElements);
inline constexpr float kLargest = 65504.0f;
inline constexpr std::uint32_t kLastScale = 239;  // 2^112: 65504 times it is a float

// The scale byte of a block, of the scale 2^(byte - 127). `bits`: of the block's largest magnitude, which divided by
// the scale is at most 65504.
CRIMP_HD std::uint8_t scale_byte(std::uint32_t bits) {
  const std::uint32_t field = (bits >> 23) + ((bits & 0x7fffff) > 0x7fe000);  // the mantissa of 65504
  return static_cast<std::uint8_t>(field < 16 ? 1 : field - 15 > kLastScale ? kLastScale : field - 15);
}
// Bits of the scale, and of what values are multiplied with. Both are powers of two and normal, so nothing is lost but
// by rounding to float16.
CRIMP_HD std::uint32_t scale_bits(std::uint32_t byte) { return byte << 23; }
CRIMP_HD std::uint32_t inverse_bits(std::uint32_t byte) { return (254 - byte) << 23; }

CRIMP_HD std::uint32_t blocks(std::uint32_t count) { return (count + kBlock - 1) / kBlock; }  // of a piece

CRIMP_HD bool legal(std::uint32_t byte) { return byte - 1 < kLastScale; }
// Whether `byte` may be scale byte b of a piece of `count` elements.
CRIMP_HD bool legal(std::uint32_t byte, std::uint32_t b, std::uint32_t count) {
  return b < blocks(count) ? legal(byte) : byte == 0;
}

}  // namespace crimp::fp16
