// Uniform levels in a block: a half-warp has a tile of 128 elements, lane i its elements i, i + 16, ..., which are one block of random numbers and one string of
// packed codes (WIRE_FORMAT.md, section 4.0).
#pragma once
#include "codec/bit_pack.hpp"
#include "codec/dither.hpp"
#include "codec/piece_kernels.cuh"
#include "codec/uniform.hpp"

namespace crimp::uniform {

inline constexpr std::uint32_t kTile = bit_pack::kTile, kHalf = bit_pack::kLanes, kMostTiles = kPieceElements / kTile, kHalves = device::kThreads / kHalf;
static_assert(kTile == dither::kTile && kHalf == dither::kLanes);

// The bytes of lane i's string in a tile of w lanes: byte k is bytes[k w + i].
__device__ inline void store_string(std::uint64_t string, int bits, std::uint32_t w, std::uint8_t* bytes) {
  for (int k = 0; k < bits; ++k) bytes[static_cast<std::uint32_t>(k) * w] = static_cast<std::uint8_t>(string >> (8 * k));
}
__device__ inline std::uint64_t load_string(const std::uint8_t* bytes, int bits, std::uint32_t w) {
  std::uint64_t string = 0;
  for (int k = 0; k < bits; ++k) string |= static_cast<std::uint64_t>(bytes[static_cast<std::uint32_t>(k) * w]) << (8 * k);
  return string;
}

// work(i, j) for the eight elements of a lane in the full tile that begins at element 0: i = 16 h + lane is the element, h the place of its code and random
// bits. The two halves of a warp have tiles 128 floats apart, the same banks of shared memory: one of them takes every pair of h in the other order.
template <class Work>
__device__ inline void for_strings(Work&& work) {
  const std::uint32_t half = device::lane() / kHalf, lane = device::lane() % kHalf;
#pragma unroll
  for (std::uint32_t step = 0; step < bit_pack::kPerLane; ++step) {
    const std::uint32_t h = step ^ half;
    work(h * kHalf + lane, h, step / 2);
  }
}

// Quantises and packs the tile that begins at element `begin` of the piece. bits as in quantize(): at random or 32768.
__device__ inline void quantize_tile(float* a, std::uint32_t begin, std::uint32_t count, const Grid& grid, int bits, int offset, Rounding rounding, const Place& place,
                                     bool keep, std::uint8_t* bytes) {
  const std::uint32_t lane = device::lane() % kHalf, rest = count - begin;
  float* tile = a + begin;
  std::uint64_t string = 0;
  const auto use = [&](std::uint32_t i, std::uint32_t h, std::uint32_t random) {
    const float x = tile[i];
    const std::int32_t q = quantize(x, grid, random);
    string |= static_cast<std::uint64_t>(q + offset) << (static_cast<std::uint32_t>(bits) * h);
    if (keep) tile[i] = x - dequantize(q, grid);
  };
  if (rest >= kTile) {
    std::uint64_t words01 = 0, words23 = 0;  // an array, indexed in a loop, would go through memory
    if (rounding != Rounding::nearest) {
      const dither::Words words = dither::philox(place, dither::kRounding, begin / kTile * kHalf + lane);
      words01 = words.w[0] | static_cast<std::uint64_t>(words.w[1]) << 32;
      words23 = words.w[2] | static_cast<std::uint64_t>(words.w[3]) << 32;
    }
    for_strings([&](std::uint32_t i, std::uint32_t h, std::uint32_t pair) {
      const auto random = static_cast<std::uint32_t>((pair < 2 ? words01 : words23) >> (h % 4 * 16)) & 0xffff;
      use(i, h, rounding == Rounding::nearest ? 32768 : random);
    });
    store_string(string, bits, kHalf, bytes + lane);
  } else {
    const std::uint32_t w = bit_pack::lanes(begin, count);
    if (lane >= w) return;
    for (std::uint32_t h = 0, i = lane; h < bit_pack::kPerLane && i < rest; ++h, i += w)
      use(i, h, rounding == Rounding::nearest ? 32768 : dither::bits16(place, dither::kRounding, begin + i));
    store_string(string, bits, w, bytes + lane);
  }
}

// Adds a tile; false in a lane that met a code above `most`, or a bit behind the last element.
__device__ inline bool add_tile(const std::uint8_t* bytes, std::uint32_t begin, std::uint32_t count, const Grid& grid, int bits, int offset, float* acc) {
  const std::uint32_t lane = device::lane() % kHalf, rest = count - begin, mask = (1u << bits) - 1, most = static_cast<std::uint32_t>(grid.highest + offset);
  bool legal = true;
  float* tile = acc + begin;
  const std::uint32_t w = bit_pack::lanes(begin, count);
  if (lane >= w) return true;
  const std::uint64_t string = load_string(bytes + lane, bits, w);
  const auto code_of = [&](std::uint32_t h) { return static_cast<std::uint32_t>(string >> (static_cast<std::uint32_t>(bits) * h)) & mask; };
  const auto add = [&](std::uint32_t i, std::uint32_t code) {
    legal = legal && code <= most;
    tile[i] += dequantize(static_cast<std::int32_t>(code) - offset, grid);
  };
  if (rest >= kTile) {
    for_strings([&](std::uint32_t i, std::uint32_t h, std::uint32_t) { add(i, code_of(h)); });
  } else {
    for (std::uint32_t h = 0, i = lane; h < bit_pack::kPerLane; ++h, i += w) {
      if (i < rest) add(i, code_of(h));
      else legal = legal && code_of(h) == 0;
    }
  }
  return legal;
}

// Where the packed codes of a tile begin, behind those of the piece. Blocks are multiples of a tile.
__device__ inline std::uint32_t tile_bytes(std::uint32_t tile, int bits) { return tile * kHalf * static_cast<std::uint32_t>(bits); }

// Max-min: min and step of every block before all codes.
struct MaxMinDevice : device::PieceDevice {
  struct Side {
    float low, step;
  };
  struct Shared {
    float low[kMostTiles], high[kMostTiles];
    Grid grids[kMostTiles];
    alignas(16) std::uint8_t bytes[kMostTiles * sizeof(Side) + kPieceElements];
  };
  int bits_;
  std::uint32_t block;
  Rounding rounding;

  __device__ std::uint32_t blocks(std::uint32_t count) const { return (count + block - 1) / block; }
  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return blocks(count) * static_cast<std::uint32_t>(sizeof(Side)) + static_cast<std::uint32_t>(bit_pack::packed_bytes(count, static_cast<std::uint32_t>(bits_)));
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t tiles = (piece.count + kTile - 1) / kTile, lane = device::lane();
    // Least and largest of each tile, by warps; then of each block, by threads.
    for (std::uint32_t tile = device::warp(); tile < tiles; tile += device::kWarps) {
      float low = __uint_as_float(0x7f800000u), high = -low;
#pragma unroll
      for (std::uint32_t k = 0; k < kTile / device::kWarp; ++k) {
        const std::uint32_t i = tile * kTile + k * device::kWarp + lane;
        if (i < piece.count) {
          low = fminf(low, a[i]);
          high = fmaxf(high, a[i]);
        }
      }
#pragma unroll
      for (int by = 16; by > 0; by /= 2) {
        low = fminf(low, __shfl_xor_sync(device::kAllLanes, low, by));
        high = fmaxf(high, __shfl_xor_sync(device::kAllLanes, high, by));
      }
      if (lane == 0) {
        own.low[tile] = low;
        own.high[tile] = high;
      }
    }
    __syncthreads();
    const std::uint32_t count = blocks(piece.count), each = block / kTile;
    if (threadIdx.x < count) {
      const std::uint32_t b = threadIdx.x, end = (b + 1) * each < tiles ? (b + 1) * each : tiles;
      float low = own.low[b * each], high = own.high[b * each];
      for (std::uint32_t t = b * each + 1; t < end; ++t) {
        low = fminf(low, own.low[t]);
        high = fmaxf(high, own.high[t]);
      }
      const Grid grid = between(low + 0.0f, high + 0.0f, bits_);  // a zero is +0
      own.grids[b] = grid;
      device::store_bytes(own.bytes + 8 * b, grid.base);
      device::store_bytes(own.bytes + 8 * b + 4, grid.step);
    }
    __syncthreads();
    std::uint8_t* codes = own.bytes + 8 * count;
    for (std::uint32_t tile = threadIdx.x / kHalf; tile < tiles; tile += kHalves)
      quantize_tile(a, tile * kTile, piece.count, own.grids[tile / each], bits_, 0, rounding, piece.place, piece.keep, codes + tile_bytes(tile, bits_));
    __syncthreads();
    device::copy_bytes(out, own.bytes, bytes(piece.count));
    return bytes(piece.count);
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t, float* acc, Shared& own) const {
    device::copy_bytes(own.bytes, in, bytes(piece.count));
    __syncthreads();
    const std::uint32_t tiles = (piece.count + kTile - 1) / kTile, count = blocks(piece.count), each = block / kTile;
    bool legal = true;
    if (threadIdx.x < count) {
      const float low = device::load_bytes<float>(own.bytes + 8 * threadIdx.x), step = device::load_bytes<float>(own.bytes + 8 * threadIdx.x + 4);
      const std::uint32_t infinity = 0x7f800000u;
      legal = (__float_as_uint(low) & 0x7fffffffu) < infinity && __float_as_uint(step) < infinity;  // step: not negative, -0 neither
      const Grid grid{low, step, 0.0f, 0, (1 << bits_) - 1};
      legal = legal && finite(grid);
      own.grids[threadIdx.x] = grid;
    }
    if (device::block_any(!legal)) return false;
    const std::uint8_t* codes = own.bytes + 8 * count;
    for (std::uint32_t tile = threadIdx.x / kHalf; tile < tiles; tile += kHalves)
      legal = add_tile(codes + tile_bytes(tile, bits_), tile * kTile, piece.count, own.grids[tile / each], bits_, 0, acc) && legal;
    return !device::block_any(!legal);
  }
};

}  // namespace crimp::uniform
