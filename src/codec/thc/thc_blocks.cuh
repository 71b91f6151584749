// How a piece of THC lies in its kernels: in blocks of 1024 elements and these in tiles of 128, with a sign for every
// element, and in a payload, as norms and rows of indices (WIRE_FORMAT.md, section 4.23).
#pragma once
#include "codec/device/piece_kernels.cuh"
#include "codec/thc/thc.hpp"

namespace crimp::thc {

inline constexpr std::uint32_t kTile = dither::kTile, kLanes = dither::kLanes, kTiles = kBlock / kTile,
                               kAtOnce = device::kThreads / kTile, kWarpsOfBlock = device::kWarps / kAtOnce,
                               kWords = kTile / 8;  // of a tile's indices, four bits each
static_assert(kAtOnce == 4 && kWarpsOfBlock == 4 && kTile == 4 * device::kWarp && kLeastBlock == kTile);
static_assert(kBlocks <= device::kWarps && kTiles * kWords == kTile);

using Two = device::Floats<2>;
using Four = device::Floats<4>;
using Signs = std::uint8_t[(kBlocks + 1) / 2 * 2 * kTile];  // of a block's places in tiles: a bit for each tile

// Of a block: the elements and tiles that it has.
struct Extent {
  std::uint32_t count, tiles;
  __device__ Extent(std::uint32_t piece_count, std::uint32_t block)
      : count(min(piece_count - block * kBlock, kBlock)), tiles(dimension(count) / kTile) {}
};

// By threads from `first` on.
__device__ inline void draw_signs(const device::Piece& piece, std::uint32_t first, Signs& signs) {
  const std::uint32_t at = threadIdx.x - first, rows = (blocks(piece.count) + 1) / 2;
  if (at >= rows * kLanes) return;
  const dither::Words words = dither::philox({piece.counter.element, piece.counter.step, 0}, dither::kShared, at);
  std::uint8_t* to = signs + at / kLanes * 2 * kTile + at % kLanes;
#pragma unroll
  for (std::uint32_t h = 0; h < 8; ++h) {
    to[h * kLanes] = static_cast<std::uint8_t>(words.w[h / 2] >> (h % 2 * 16));
    to[h * kLanes + kTile] = static_cast<std::uint8_t>(words.w[h / 2] >> (h % 2 * 16 + 8));
  }
}
// Of four neighbours, a byte each.
__device__ inline std::uint32_t four_signs(const Signs& signs, std::uint32_t block, std::uint32_t in_tile) {
  return *reinterpret_cast<const std::uint32_t*>(signs + block * kTile + in_tile);
}
// x with the topmost bit of signs << by.
__device__ inline float with_sign(float x, std::uint32_t signs, int by) {
  return __uint_as_float(__float_as_uint(x) ^ (signs << by & 0x80000000u));
}

// Of Tables, which as a parameter of kernels would be aligned too much.
struct DeviceTables : device::PieceDevice {
  std::uint32_t bits_, granularity;
  float to_grid, unit, slope[64], offset[64];
  std::int8_t centred[kMostLevels];
  std::uint32_t values[kMostLevels / 4];  // bytes: centred + middle, from 0 on
  std::uint32_t middle, padding = 0;

  explicit DeviceTables(const Tables& t)
      : bits_(t.bits), granularity(t.granularity), to_grid(t.to_grid), unit(t.unit), values{},
        middle(t.granularity % 2 ? t.granularity : t.granularity / 2) {
    for (int k = 0; k < 64; ++k) slope[k] = t.slope[k], offset[k] = t.offset[k];
    for (std::uint32_t i = 0; i < kMostLevels; ++i) {
      centred[i] = t.centred[i];
      if (i < t.levels) values[i / 4] |= (static_cast<std::uint32_t>(t.centred[i]) + middle) << (8 * (i % 4));
    }
  }

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return blocks(count) * static_cast<std::uint32_t>(sizeof(float)) +
           static_cast<std::uint32_t>(index_bytes(count, bits_));
  }
  __device__ std::uint32_t tile_bytes() const { return kTile / 8 * bits_; }

  // Where the index of an element of sixteenth h of a tile is: byte 16 row + lane, above `shift`; the third bit of 3 in
  // row 2.
  __device__ std::uint32_t row(std::uint32_t h) const { return bits_ == 4 ? h % 4 : h % 2; }
  __device__ std::uint32_t shift(std::uint32_t h) const { return bits_ == 4 ? 4 - h / 4 * 4 : 6 - h / 2 * 2; }
  __device__ std::uint32_t mask() const { return bits_ == 4 ? 15 : 3; }
};

}  // namespace crimp::thc
