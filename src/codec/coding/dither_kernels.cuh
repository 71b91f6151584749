// Random bits in a block: a half-warp has a tile of 128 elements, lane i its elements i, i + 16, ..., whose bits are
// one block of random numbers.
#pragma once
#include "codec/coding/dither.hpp"
#include "codec/device/block.cuh"

namespace crimp::dither {

inline constexpr std::uint32_t kHalves = device::kThreads / kLanes, kPerLane = kTile / kLanes;

// work(i, h, bits) for the eight elements i = 16 h + lane of a tile, with 16 random bits each; `drawn` false: without
// them, bits is 32768. The two halves of a warp have tiles 128 floats apart, the same banks of shared memory: one of
// them takes every pair of h in the other order. No barrier.
template <class Work>
__device__ inline void for_tile(const RandomCounter& counter, std::uint32_t tile, bool drawn, Work&& work) {
  const std::uint32_t half = device::lane() / kLanes, lane = device::lane() % kLanes;
  std::uint64_t words01 = 0, words23 = 0;  // an array, indexed in a loop, would go through memory
  if (drawn) {
    const Words words = philox(counter, kRounding, tile * kLanes + lane);
    words01 = words.w[0] | static_cast<std::uint64_t>(words.w[1]) << 32;
    words23 = words.w[2] | static_cast<std::uint64_t>(words.w[3]) << 32;
  }
#pragma unroll
  for (std::uint32_t step = 0; step < kPerLane; ++step) {
    const std::uint32_t h = step ^ half,
                        random = static_cast<std::uint32_t>((step < kPerLane / 2 ? words01 : words23) >> (h % 4 * 16)) &
                                 0xffff;
    work(h * kLanes + lane, h, drawn ? random : 32768u);
  }
}

}  // namespace crimp::dither
