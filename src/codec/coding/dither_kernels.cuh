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

inline constexpr std::uint32_t kPairs = kLanes / 2, kPairTiles = device::kThreads / kPairs;

// The random bits of two elements, 16 of a word each.
struct PairBits {
  std::uint32_t first, second, half;  // 1 for the lower ones, 0x100 for the upper ones

  // x and an element's bits.
  __device__ std::uint32_t add_first(std::uint32_t x) const { return __dp2a_lo(first, half, x); }
  __device__ std::uint32_t add_second(std::uint32_t x) const { return __dp2a_lo(second, half, x); }
};

// Likewise by pairs, in a tile whose 128 elements there are: eight neighbouring threads have it, thread t lanes 2 t and
// 2 t + 1. use(step, i, bits) for the elements i and i + 1, step from 0 to 7 and a constant when unrolled. Steps 2 m
// and 2 m + 1 are the rows h = 2 m and 2 m + 1, where flip (0 or 1) in the other order: in every second tile of a warp,
// whose elements else were in the same banks of shared memory.
struct Pairs {
  std::uint32_t pair, flip;
  // What depends on the tile is made anew for each, of which a thread has one or two: registers are scarcer.
  __device__ explicit Pairs(std::uint32_t tile) : pair(threadIdx.x % kPairs), flip(tile % 2) {}
  template <class Use>
  __device__ void operator()(RandomCounter counter, std::uint32_t tile, Use&& use) const {
    // Adds 0, which the compiler does not know: else it keeps the keys of all rounds in registers, for one or two
    // tiles.
    counter.element += static_cast<std::uint64_t>(tile >> 20) << 32;
    const auto draw = [&](std::uint32_t lane) {
      return philox<kRounds, true>(counter, kRounding, tile * kLanes + lane);
    };
    const Words left = draw(2 * pair), right = draw(2 * pair + 1);
    const std::uint32_t half = flip ? 0x100 : 1, other = flip ? 1 : 0x100, first = kLanes * flip + 2 * pair,
                        second = kLanes * (1 - flip) + 2 * pair;
#pragma unroll
    for (std::uint32_t step = 0; step < kPerLane; ++step)
      use(step, step / 2 * 2 * kLanes + (step % 2 == 0 ? first : second),
          PairBits{left.w[step / 2], right.w[step / 2], step % 2 == 0 ? half : other});
  }
};

}  // namespace crimp::dither
