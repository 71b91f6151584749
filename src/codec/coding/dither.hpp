// Random bits for rounding, selection and rotation: 16 per element, functions of RandomCounter and the element's index
// in its piece alone, so that host and device, every SIMD target and every order of work see the same. WIRE_FORMAT.md,
// section 5.
//
// Philox4x32 with 7 rounds (Salmon et al., SC'11; the least that passes BigCrush there). Counter: {block, low half of
// counter.element, rank, step}, key: {stream, high half of counter.element}. A block's four words serve eight elements
// 16 apart, so that 16 neighbouring blocks fill 128 neighbouring elements without a shuffle.
#pragma once
#include <cstdint>

#include "codec/codec.hpp"
#include "core/host_device.hpp"

namespace crimp::dither {

// What the bits are for. Streams that receivers draw again (kShared) leave the encoder's rank out.
enum Stream : std::uint32_t { kRounding = 0x524e4400, kShared = 0x53484100 };

inline constexpr std::uint32_t kTile = 128, kLanes = 16, kRounds = 7;
inline constexpr std::uint32_t kM0 = 0xd2511f53, kM1 = 0xcd9e8d57, kW0 = 0x9e3779b9, kW1 = 0xbb67ae85;

struct Words {
  std::uint32_t w[4];
};

// The product of two numbers; by_one: in a kernel by one instruction, where nvcc makes a product of 64-bit numbers of
// some. It takes more registers in kernels that have none to spare.
template <bool by_one>
CRIMP_HD std::uint64_t product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  if constexpr (by_one) {
    std::uint64_t p;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(p) : "r"(a), "r"(b));
    return p;
  }
#endif
  return std::uint64_t{a} * b;
}

template <std::uint32_t rounds = kRounds, bool by_one = false>
CRIMP_HD Words philox(const RandomCounter& counter, std::uint32_t stream, std::uint32_t block) {
  std::uint32_t c0 = block, c1 = static_cast<std::uint32_t>(counter.element), c2 = counter.rank, c3 = counter.step;
  std::uint32_t k0 = stream, k1 = static_cast<std::uint32_t>(counter.element >> 32);
  for (std::uint32_t round = 0; round < rounds; ++round, k0 += kW0, k1 += kW1) {
    const std::uint64_t p0 = product<by_one>(kM0, c0), p1 = product<by_one>(kM1, c2);
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
  }
  return {{c0, c1, c2, c3}};
}

// The 16 bits of element i of the piece with this counter.
CRIMP_HD std::uint32_t bits16(const RandomCounter& counter, std::uint32_t stream, std::uint32_t i) {
  const std::uint32_t half = i % kTile / kLanes;
  const Words words = philox(counter, stream, i / kTile * kLanes + i % kLanes);
  // By shifts: in a kernel an indexed array would be in local memory.
  const std::uint64_t low = words.w[0] | std::uint64_t{words.w[1]} << 32,
                      high = words.w[2] | std::uint64_t{words.w[3]} << 32;
  return static_cast<std::uint32_t>((half < 4 ? low : high) >> half % 4 * 16) & 0xffff;
}

}  // namespace crimp::dither
