// Uniform levels in a block: lane i of a tile of 128 elements has its elements i, i + 16, ..., which are one block of
// random numbers and one string of packed codes (WIRE_FORMAT.md, section 4.0). Eight threads have a tile, two lanes
// each (wide codes, and the end of a piece: sixteen threads). Decoding adds in registers: a warp has a tile, four
// neighbours a lane.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/uniform/quantize_tile.cuh"

namespace crimp::uniform {

// Side information of every block of elements, then the codes of all. A kind of grid supplies
//
//   struct Kind {
//     static constexpr bool kWide;                  // codes of 9 to 16 bits
//     static constexpr bool kBased;                 // the base may be other than 0; codes begin with level 0
//     static constexpr bool kAllLegal;              // all codes of so many bits are legal
//     static constexpr std::uint32_t kSide;         // bytes of side information of a block
//     __device__ int highest() const;               // level of all grids
//     struct Shared { ... };
//     __device__ void measure(const float* a, std::uint32_t count, std::uint32_t block, std::uint32_t blocks,
//                             Grid* grids, std::uint8_t* sides, Shared&) const;
//     __device__ bool open(const float (&side)[kSide / 4], Grid*) const;  // one block's; false where it is not legal
//     struct Divisor;                               // what of `open` is alike for all blocks
//     __device__ Divisor divisor() const;
//     __device__ bool open(const float (&side)[kSide / 4], const Divisor&, Grid*) const;
//   };
// All threads call measure, and a barrier follows.
template <class Kind>
struct BlockDevice : device::QuadSums {
  static constexpr std::uint32_t kEncodeBlocks = 4, kDecodeBlocks = Kind::kWide ? 3 : 2, kOtherBlocks = 2;
  static constexpr int kPayloads = 2;
  static constexpr bool kWhole = !Kind::kWide, kAhead = true;
  static_assert(kTile == kEach * device::kWarp && bit_pack::kPerLane == kTile / kHalf);
  struct Shared {
    typename Kind::Shared own;
    Grid grids[kMostTiles];
    alignas(16) std::uint8_t bytes[kMostTiles * Kind::kSide + kPieceElements * (Kind::kWide ? 2 : 1)];
  };
  Kind kind;
  std::uint32_t block, bits_;
  int offset;  // code = q + offset
  Rounding rounding;

  // Quotients of tiles by it, times 2^-kShift, are exact.
  static constexpr std::uint32_t kShift = 16;
  static_assert(2 * kMostTiles * kMostTiles < (1u << kShift));
  std::uint32_t reciprocal = ((1u << kShift) + block / kTile - 1) / (block / kTile);

  __device__ std::uint32_t blocks(std::uint32_t count) const {
    return ((count + kTile - 1) / kTile + block / kTile - 1) * reciprocal >> kShift;
  }
  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return blocks(count) * Kind::kSide + static_cast<std::uint32_t>(bit_pack::packed_bytes(count, bits_));
  }
  __device__ const Grid& grid_of(std::uint32_t tile, const Shared& own) const {
    return own.grids[tile * reciprocal >> kShift];
  }
  // Blocks are multiples of a tile, so that their packed codes stand back to back.
  template <std::uint32_t bits, bool keep>
  __device__ void quantize_whole(const device::Piece& piece, float* a, std::uint8_t* codes, Shared& own) const {
#pragma unroll 1
    for (std::uint32_t tile = threadIdx.x / dither::kPairs; tile < piece.count / kTile; tile += dither::kPairTiles)
      quantize_pairs<bits, Kind::kBased, keep>(a + tile * kTile, tile, grid_of(tile, own), kind.highest(), offset,
                                               piece.counter, codes + tile * kHalf * bits);
  }
  template <std::uint32_t bits>
  __device__ void quantize_whole(const device::Piece& piece, float* a, std::uint8_t* codes, Shared& own) const {
    if (piece.keep) quantize_whole<bits, true>(piece, a, codes, own);
    else quantize_whole<bits, false>(piece, a, codes, own);
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t n = blocks(piece.count), tiles = (piece.count + kTile - 1) / kTile;
    std::uint8_t* codes = own.bytes + Kind::kSide * n;
    kind.measure(a, piece.count, block, n, own.grids, own.bytes, own.own);
    __syncthreads();
    // Half-warps have the tile that is not whole, and all where bits are neither four nor eight.
    const bool pairs = !Kind::kWide && (bits_ == 8 || bits_ == 4) && rounding != Rounding::nearest;
    if (pairs) {
      if (bits_ == 8) quantize_whole<8>(piece, a, codes, own);
      else quantize_whole<4>(piece, a, codes, own);
    }
#pragma unroll 1
    for (std::uint32_t tile = (pairs ? piece.count / kTile : 0) + threadIdx.x / kHalf; tile < tiles;
         tile += dither::kHalves)
      quantize_tile<Kind::kWide>(a, tile * kTile, piece.count, grid_of(tile, own), bits_, offset, rounding,
                                 piece.counter, piece.keep, codes + tile * kHalf * bits_);
    __syncthreads();
    device::copy_bytes(out, own.bytes, bytes(piece.count));
    return bytes(piece.count);
  }

  // Whether the piece can be read by words.
  using Head = bool;
  // Bytes that four codes begin in, and those behind them in the strings: byte k of each word is of code k. In a tile
  // that is not whole, or not read by words, the piece's address, for add to look there itself.
  static constexpr std::uint32_t kRows = Kind::kWide ? 3 : 2;
  struct Slot {
    std::uint32_t rows[kRows] = {};
    float side[Kind::kSide / sizeof(float)] = {};
  };

  __device__ static std::uint32_t begin_of(std::uint32_t j) { return (device::warp() + j * device::kWarps) * kTile; }
  // Of a tile: also threads behind its last element look at codes there.
  __device__ static bool begins(std::uint32_t j, std::uint32_t count) { return begin_of(j) < count; }

  __device__ static bool whole(std::uint32_t begin, std::uint32_t count) { return count - begin >= kTile; }
  __device__ Head head(const device::Piece&, const std::uint8_t* in) const {
    return reinterpret_cast<std::uintptr_t>(in) % sizeof(std::uint32_t) == 0;
  }
  __device__ bool legal(const device::Piece&, Head) const { return true; }
  // Of a tile: where its block's side information and its codes are in a piece.
  __device__ std::uint32_t side_of(std::uint32_t begin) const { return begin / block * Kind::kSide; }
  __device__ std::uint32_t codes_of(std::uint32_t begin, std::uint32_t count) const {
    return blocks(count) * Kind::kSide + begin / bit_pack::kPerLane * bits_;
  }
  __device__ Slot fetch(const device::Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::uint32_t begin = begin_of(j);
    Slot slot;
    if (begin >= piece.count) return slot;
    if (head(piece, in) && whole(begin, piece.count)) {
      const std::uint32_t before = device::lane() / 4 * bits_,
                          first = codes_of(begin, piece.count) + before / 8 * kHalf + device::lane() % 4 * 4;
#pragma unroll
      for (std::uint32_t k = 0; k < Kind::kSide / sizeof(float); ++k)
        slot.side[k] = *reinterpret_cast<const float*>(in + side_of(begin) + sizeof(float) * k);
#pragma unroll
      for (std::uint32_t r = 0; r < kRows; ++r)
        if (before % 8 + bits_ > 8 * r) slot.rows[r] = *reinterpret_cast<const std::uint32_t*>(in + first + r * kHalf);
    } else {
      slot.rows[0] = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(in));
      slot.rows[1] = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(in) >> 32);
    }
    return slot;
  }
  // False where the side information is not legal, a code is above the highest level, or one without an element not 0.
  __device__ bool add(const device::Piece& piece, Head by_words, const Slot& slot, std::uint32_t j,
                      float (&sums)[kEach], const DecodeShared&) const {
    const std::uint32_t begin = begin_of(j);
    if (begin >= piece.count) return true;
    Grid grid;
    bool legal;
    const auto add_code = [&](std::uint32_t k, std::uint32_t code, std::uint32_t most) {
      legal = legal && code <= most;
      sums[k] += dequantize(static_cast<std::int32_t>(code) - offset, grid);
    };
    if (by_words && whole(begin, piece.count)) {
      legal = kind.open(slot.side, &grid) && finite(grid);
      const std::uint32_t shift = device::lane() / 4 * bits_ % 8;
#pragma unroll
      for (std::uint32_t k = 0; k < kEach; ++k) {
        std::uint32_t string = __byte_perm(slot.rows[0], slot.rows[1], k | (4 + k) << 4) & 0xffff;
        if constexpr (kRows == 3) string |= (slot.rows[2] >> (8 * k) & 0xff) << 16;
        add_code(k, string >> shift & ((1u << bits_) - 1), static_cast<std::uint32_t>(grid.highest + offset));
      }
    } else {
      const std::uint8_t* const in = device::global(
          reinterpret_cast<const std::uint8_t*>(slot.rows[0] | static_cast<std::uintptr_t>(slot.rows[1]) << 32));
      float side[Kind::kSide / sizeof(float)];
#pragma unroll
      for (std::uint32_t k = 0; k < Kind::kSide / sizeof(float); ++k)
        side[k] = device::load_bytes<float>(in + side_of(begin) + sizeof(float) * k);
      legal = kind.open(side, &grid) && finite(grid);
      const std::uint32_t width = bit_pack::lanes(begin, piece.count);
#pragma unroll
      for (std::uint32_t k = 0; k < kEach; ++k) {
        const std::uint32_t at = kEach * device::lane() + k;
        if (at < bit_pack::kPerLane * width)
          add_code(k, bit_pack::unpack(in + codes_of(begin, piece.count), width, bits_, at),
                   at < piece.count - begin ? static_cast<std::uint32_t>(grid.highest + offset) : 0);
      }
    }
    return legal;
  }

  // Of codes of 4 or 8 bits: a word has four of them. They become floats by their bits, 0x4b000000 being 2^23. A lane
  // opens the grid of one of its warp's tiles.
  template <std::uint32_t bits>
  struct Whole {
    struct Head {
      float side[Kind::kSide / sizeof(float)], base, step;
    };
    using Slot = std::uint32_t;
    typename Kind::Divisor divisor;
    std::uint32_t side, codes, shift;  // of the lane's tile, and of its first codes; in their bytes
    std::uint32_t exponent;  // 0x4b000000, which the compiler is not to know: selectors of bytes would each take a move
    float zero, most;

    __device__ explicit Whole(const BlockDevice& of)
        : divisor(of.kind.divisor()), side(of.side_of(begin_of(device::lane() < kSlots ? device::lane() : kSlots - 1))),
          codes(of.codes_of(begin_of(0), kPieceElements) + device::lane() / 4 * bits / 8 * kHalf +
                device::lane() % 4 * 4),
          shift(device::lane() / 4 * bits % 8), exponent(0x4b000000 + (Kind::kBased ? of.block >> 16 : 0)),
          zero(Kind::kBased ? 0x1p23f : 0x1p23f + static_cast<float>(of.offset)),
          most(static_cast<float>(of.kind.highest())) {}
    __device__ Head head(const std::uint8_t* in) const {
      Head head = {};
#pragma unroll
      for (std::uint32_t k = 0; k < Kind::kSide / sizeof(float); ++k)
        head.side[k] = __uint_as_float(device::word_at(in + side + k * sizeof(float)));
      return head;
    }
    __device__ Slot fetch(const std::uint8_t* in, std::uint32_t j) const {
      return device::word_at(in + codes + j * (device::kWarps * kHalf * bits));
    }
    __device__ bool open(const BlockDevice& of, Head& head) const {
      Grid grid;
      const bool legal = of.kind.open(head.side, divisor, &grid) && finite(grid);
      head.base = grid.base, head.step = grid.step;
      return legal;
    }
    __device__ bool add(const Head& head, Slot word, std::uint32_t j, float (&sums)[kEach], const DecodeShared&) const {
      const int of = static_cast<int>(j);
      const float step = __shfl_sync(device::kAllLanes, head.step, of),
                  base = Kind::kBased ? __shfl_sync(device::kAllLanes, head.base, of) : 0.0f;
      const std::uint32_t four = bits == 8 ? word : word >> shift & 0x0f0f0f0f;
      bool legal = true;
#pragma unroll
      for (std::uint32_t k = 0; k < kEach; ++k) {
        const float q = __uint_as_float(__byte_perm(four, exponent, 0x7440 | k)) - zero;
        if constexpr (!Kind::kAllLegal) legal = legal && q <= most;
        // Of base 0: one rounding is as good as two, because no product of an integer and a float underflows to 0.
        sums[k] += Kind::kBased ? base + q * step : fmaf(q, step, 0.0f);
      }
      return legal;
    }
  };
  template <class Work>
  __device__ bool with_whole(Work&& work) const {
    if (bits_ == 8) work(Whole<8>(*this));
    else if (bits_ == 4) work(Whole<4>(*this));
    return bits_ == 8 || bits_ == 4;
  }
};

// Least and step of a block.
struct MaxMin {
  static constexpr bool kWide = false, kAllLegal = true, kBased = true;
  static constexpr std::uint32_t kSide = 2 * sizeof(float);
  struct Shared {
    std::uint32_t low[kMostTiles], high[kMostTiles];  // as ordered() has them
  };
  int bits;

  __device__ int highest() const { return (1 << bits) - 1; }
  // Bits that order as numbers without sign as the floats do, and back.
  __device__ static std::uint32_t ordered(float x) {
    const std::uint32_t bits = __float_as_uint(x);
    return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
  }
  __device__ static float number(std::uint32_t order) {
    return __uint_as_float(order ^ (static_cast<std::uint32_t>(~static_cast<std::int32_t>(order) >> 31) | 0x80000000u));
  }
  __device__ void measure(const float* a, std::uint32_t count, std::uint32_t block, std::uint32_t blocks, Grid* grids,
                          std::uint8_t* sides, Shared& own) const {
    const std::uint32_t tiles = (count + kTile - 1) / kTile, lane = device::lane(), each = block / kTile;
    // Least and largest of runs of tiles that a block is whole runs of, by warps; then of each block, by threads.
    const std::uint32_t run = each % 4 == 0 ? 4 : 1, runs = (tiles + run - 1) / run;
#pragma unroll 1
    for (std::uint32_t r = device::warp(); r < runs; r += device::kWarps) {
      float low = __uint_as_float(0x7f800000u), high = -low;
      const auto take = [&](float x) {
        low = fminf(low, x);
        high = fmaxf(high, x);
      };
      const std::uint32_t begin = r * run * kTile, end = min(begin + run * kTile, count);
      if (end - begin == 4 * kTile) {
        const float* at = a + begin + 4 * lane;
#pragma unroll
        for (std::uint32_t t = 0; t < 4; ++t) {
          const device::Floats<4> x = device::load<4>(at + t * kTile);
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k) take(x.v[k]);
        }
      } else {
#pragma unroll 1
        for (std::uint32_t i = begin + lane; i < end; i += device::kWarp) take(a[i]);
      }
      const std::uint32_t least = __reduce_min_sync(device::kAllLanes, ordered(low)),
                          largest = __reduce_max_sync(device::kAllLanes, ordered(high));
      if (lane == 0) {
        own.low[r] = least;
        own.high[r] = largest;
      }
    }
    __syncthreads();
    if (threadIdx.x < blocks) {
      const std::uint32_t b = threadIdx.x, first = b * (each / run), end = min(first + each / run, runs);
      std::uint32_t low = own.low[first], high = own.high[first];
#pragma unroll 1
      for (std::uint32_t r = first + 1; r < end; ++r) {
        low = min(low, own.low[r]);
        high = max(high, own.high[r]);
      }
      const Grid grid = between(number(low) + 0.0f, number(high) + 0.0f, bits);  // a zero is +0
      grids[b] = grid;
      device::store_bytes(sides + kSide * b, grid.base);
      device::store_bytes(sides + kSide * b + sizeof(float), grid.step);
    }
  }
  __device__ bool open(const float (&side)[2], Grid* grid) const {
    const float low = side[0], step = side[1];
    const std::uint32_t infinity = 0x7f800000u;
    *grid = {low, step, 0.0f, 0, (1 << bits) - 1};
    return (__float_as_uint(low) & 0x7fffffffu) < infinity &&
           __float_as_uint(step) < infinity;  // step: not negative, -0 neither
  }
  struct Divisor {};
  __device__ Divisor divisor() const { return {}; }
  __device__ bool open(const float (&side)[2], const Divisor&, Grid* grid) const { return open(side, grid); }
};

// The L2 norm of a block, which a warp adds up.
template <bool wide>
struct Qsgd {
  static constexpr bool kWide = wide, kAllLegal = false, kBased = false;
  static constexpr std::uint32_t kSide = sizeof(float);
  struct Shared {
    float squares[kMostTiles];
  };
  int s;

  __device__ int highest() const { return s; }
  __device__ void measure(const float* a, std::uint32_t count, std::uint32_t block, std::uint32_t blocks, Grid* grids,
                          std::uint8_t* sides, Shared& own) const {
    static_assert(kSumLanes == 4 * kHalf);
    const std::uint32_t thread = threadIdx.x % kHalf;
    // Blocks by half-warps, of which both take part in the sum of one.
#pragma unroll 1
    for (std::uint32_t first = 2 * device::warp(); first < blocks; first += dither::kHalves) {
      const std::uint32_t b = first + device::lane() / kHalf;
      float sums[4] = {};
      if (b < blocks) {
        const std::uint32_t begin = b * block, n = min(block, count - begin);
        const float* at = a + begin + 4 * thread;
        const auto add = [&](std::uint32_t k, float x) { sums[k] += x * x; };
#pragma unroll 1
        for (std::uint32_t t = n / kTile; t > 0; --t, at += kTile) {
          const device::Floats<4> x = device::load<4>(at), y = device::load<4>(at + kSumLanes);
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k) add(k, x.v[k]);
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k) add(k, y.v[k]);
        }
#pragma unroll 1
        for (std::uint32_t i = 4 * thread; i < n % kTile; i += kSumLanes, at += kSumLanes)
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k)
            if (i + k < n % kTile) add(k, at[k]);
      }
      const float squares = device::half_warp_tree_sum(sums);
      if (thread == 0 && b < blocks) own.squares[b] = squares;
    }
    __syncthreads();
    if (threadIdx.x < blocks) {
      const std::uint32_t b = threadIdx.x;
      const float norm = norm_of({0.0f, own.squares[b], 0.0f});
      grids[b] = symmetric(norm, s);
      device::store_bytes(sides + kSide * b, norm);
    }
  }
  __device__ bool open(const float (&side)[1], Grid* grid) const {
    const float norm = side[0];
    *grid = symmetric(norm, s);
    return __float_as_uint(norm) < 0x7f800000u;  // finite, not negative, -0 neither
  }
  struct Divisor {
    float levels, reciprocal;
  };
  __device__ Divisor divisor() const { return {static_cast<float>(s), 1.0f / static_cast<float>(s)}; }
  // norm / s as a division has it: the quotient by the reciprocal, made right by what it leaves. Where that could
  // underflow, or the norm is not finite, it divides.
  __device__ bool open(const float (&side)[1], const Divisor& by, Grid* grid) const {
    const float norm = side[0];
    const std::uint32_t bits = __float_as_uint(norm);
    float step = norm * by.reciprocal;
    step = fmaf(fmaf(-by.levels, step, norm), by.reciprocal, step);
    if (bits - kLeastNormal > kMostNormal - kLeastNormal) step = norm / by.levels;
    *grid = {0.0f, step, 0.0f, -s, s};
    return bits < 0x7f800000u;
  }
  static constexpr std::uint32_t kLeastNormal = 0x20000000, kMostNormal = 0x7e000000;  // 2^-63 and 2^125
};

}  // namespace crimp::uniform
