// THC in a block: two blocks of 1024 coordinates at a time. A warp has a tile of 128, four neighbours a lane, and does
// the strides below 128 in registers and by shuffles; then a thread has the same place of a block's eight tiles and
// does the others. Strides ascend as on the host, so that rotated values have its bits; what is decoded are integers
// below 2^16, exact in floats. Quantised are tiles as dither's and the layout's: a lane of 16 has eight elements, one
// block of random numbers and `bits` bytes; two lanes of the tile's warp share them, every other element each.
#pragma once
#include "codec/device/piece_kernels.cuh"
#include "codec/thc/thc.hpp"

namespace crimp::thc {

inline constexpr std::uint32_t kTile = dither::kTile, kLanes = dither::kLanes, kTiles = kBlock / kTile,
                               kAtOnce = device::kWarps / kTiles;
static_assert(kAtOnce == 2 && kTile == 4 * device::kWarp && kLeastBlock == kTile);

struct Device : device::PieceDevice {
  static constexpr std::uint32_t kEncodeBlocks = 3, kDecodeBlocks = 3;
  struct Shared {
    alignas(16) float y[kAtOnce * kBlock];
    alignas(16) std::uint16_t signs[(kBlocks + 1) / 2 * kTile];
    float norms[kBlocks];
    float slope[64], offset[64], centred[kMostLevels];
    std::uint32_t next[device::kThreads];  // of random bits, each thread's own: with both words in registers 40 spill
  };
  using Four = device::Floats<4>;
  // Of Tables, which as a parameter of kernels would be aligned too much.
  std::uint32_t bits_, granularity;
  float to_grid, unit, slope[64], offset[64];
  std::int8_t centred[kMostLevels];

  explicit Device(const Tables& t) : bits_(t.bits), granularity(t.granularity), to_grid(t.to_grid), unit(t.unit) {
    for (int k = 0; k < 64; ++k) slope[k] = t.slope[k], offset[k] = t.offset[k];
    for (std::uint32_t i = 0; i < kMostLevels; ++i) centred[i] = t.centred[i];
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

  // A block of a piece. Coordinates behind `count` are zeros.
  struct Block {
    std::uint32_t index, begin, count, tiles;
    float norm;
  };
  // Of no tiles where there is nothing to do.
  __device__ static Block block(std::uint32_t index, std::uint32_t count, const Shared& own) {
    Block b{index, index * kBlock, 0, 0, 0.0f};
    if (b.begin >= count) return b;
    b.count = count - b.begin < kBlock ? count - b.begin : kBlock;
    b.tiles = dimension(b.count) / kTile;
    b.norm = own.norms[index];
    return b;
  }

  __device__ void begin(const device::Piece& piece, Shared& own) const {
    if (threadIdx.x < 64) {
      own.slope[threadIdx.x] = slope[threadIdx.x];
      own.offset[threadIdx.x] = offset[threadIdx.x];
      if (threadIdx.x < kMostLevels) own.centred[threadIdx.x] = static_cast<float>(centred[threadIdx.x]);
    }
    const std::uint32_t at = threadIdx.x - 64, rows = (blocks(piece.count) + 1) / 2;  // other warps
    if (at < rows * kLanes) {
      const dither::Words words = dither::philox({piece.counter.element, piece.counter.step, 0}, dither::kShared, at);
      std::uint16_t* to = own.signs + at / kLanes * kTile + at % kLanes;
#pragma unroll
      for (std::uint32_t h = 0; h < 8; ++h) to[h * kLanes] = static_cast<std::uint16_t>(words.w[h / 2] >> (h % 2 * 16));
    }
  }
  __device__ static float with_sign(float x, const Block& b, std::uint32_t tile, std::uint32_t in_tile,
                                    const Shared& own) {
    const std::uint32_t word = own.signs[b.index / 2 * kTile + in_tile];
    return __uint_as_float(__float_as_uint(x) ^ (word << (31 - sign_bit(b.index, tile * kTile)) & 0x80000000u));
  }

  // By a warp; in lane 0.
  __device__ static float norm_of(const float* a, std::uint32_t count) {
    std::uint32_t top = 0;
    for (std::uint32_t i = device::lane(); i < count; i += device::kWarp)
      top = max(top, __float_as_uint(a[i]) & 0x7fffffffu);
    const float largest = __uint_as_float(__reduce_max_sync(device::kAllLanes, top));
    if (largest == 0.0f) return 0.0f;
    const float up = largest < kSmall   ? kUp
                     : largest < kLarge ? 1.0f
                                        : kDown,
                back = largest < kSmall   ? kDown
                       : largest < kLarge ? 1.0f
                                          : kUp;
    float low = 0.0f, high = 0.0f;
    for (std::uint32_t i = device::lane(); i < count; i += kSumLanes) {
      const float x = a[i] * up, z = i + kSumLanes / 2 < count ? a[i + kSumLanes / 2] * up : 0.0f;
      low += x * x;
      high += z * z;
    }
    const float norm = sqrtf(device::warp_tree_sum(low, high)) * back;
    return norm < kLeastNorm ? 0.0f : norm < kMostNorm ? norm : kMostNorm;
  }

  __device__ static void butterfly(float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  }
  // Strides 1 to 64 of a tile, of which a lane has four neighbours.
  __device__ static void rotate_tile(Four& x) {
    butterfly(x.v[0], x.v[1]);
    butterfly(x.v[2], x.v[3]);
    butterfly(x.v[0], x.v[2]);
    butterfly(x.v[1], x.v[3]);
#pragma unroll
    for (std::uint32_t by = 1; by < device::kWarp; by *= 2)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float other = __shfl_xor_sync(device::kAllLanes, x.v[k], static_cast<int>(by));
        x.v[k] = device::lane() & by ? other - x.v[k] : x.v[k] + other;
      }
  }
  // The other strides, of place `at` of all tiles; use(tile, value).
  template <class Use>
  __device__ static void rotate_tiles(const float* y, std::uint32_t tiles, std::uint32_t at, Use&& use) {
    float v[kTiles];
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j) v[j] = j < tiles ? y[j * kTile + at] : 0.0f;
#pragma unroll
    for (std::uint32_t stride = 1; stride < kTiles; stride *= 2)
      if (stride < tiles)
#pragma unroll
        for (std::uint32_t j = 0; j < kTiles; ++j)
          if (!(j & stride)) butterfly(v[j], v[j + stride]);
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j)
      if (j < tiles) use(j, v[j]);
  }

  // Random bits of four elements, 16 each.
  struct Random {
    std::uint32_t words[2];
  };
  // Of a lane's elements in the turn that begins with block `first`. In every other turn a warp draws for two: the
  // lower half the words of this turn for both halves, the upper half those of the next, which are kept.
  __device__ static Random random_of(const RandomCounter& counter, std::uint32_t first, std::uint32_t& next,
                                     Shared& own) {
    if (first % (2 * kAtOnce) != 0) return {{next, own.next[threadIdx.x]}};
    const bool upper = device::lane() / kLanes != 0;
    const dither::Words drawn =
        dither::philox(counter, dither::kRounding,
                       ((first + (upper ? kAtOnce : 0)) * kTiles + device::warp()) * kLanes + device::lane() % kLanes);
    Random now;
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t even = __byte_perm(drawn.w[2 * i], drawn.w[2 * i + 1], 0x5410),
                          odd = __byte_perm(drawn.w[2 * i], drawn.w[2 * i + 1], 0x7632), mine = upper ? odd : even,
                          other = __shfl_xor_sync(device::kAllLanes, upper ? even : odd, kLanes);
      now.words[i] = upper ? other : mine;
      (i == 0 ? next : own.next[threadIdx.x]) = upper ? mine : other;
    }
    return now;
  }
  // A warp: the indices of its tile to `to`, and what they decode to in place of y. A lane has every other sixteenth.
  __device__ void quantize_tile(float* y, float norm, const Random& random, const Shared& own, std::uint8_t* to) const {
    const std::uint32_t lane = device::lane() % kLanes, odd = device::lane() / kLanes;
    std::uint32_t string = 0;
    if (norm != 0.0f) {
      const float scale = to_grid / norm;
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k) {
        const std::uint32_t h = 2 * k + odd;
        float& value = y[h * kLanes + lane];
        const std::uint32_t index =
            quantize(own.slope, own.offset, granularity, value, scale, random.words[k / 2] >> (k % 2 * 16) & 0xffff);
        value = own.centred[index];
        string |= (index & mask()) << (8 * row(h) + shift(h));
        if (bits_ == 3) string |= (index >> 2) << (23 - h);
      }
      string |= __shfl_xor_sync(device::kAllLanes, string, kLanes);
    }
    for (std::uint32_t k = odd; k < bits_; k += 2) to[k * kLanes + lane] = static_cast<std::uint8_t>(string >> (8 * k));
  }
  // A warp: what the indices of a tile decode to, four neighbours a lane; false where the norm says that there is
  // nothing, and there is.
  __device__ bool load_tile(const std::uint8_t* in, float norm, const Shared& own, Four& x) const {
    const std::uint32_t h = device::lane() / 4, first = 4 * (device::lane() % 4);
    const auto low = device::load_bytes<std::uint32_t>(in + row(h) * kLanes + first);
    const auto high = bits_ == 3 ? device::load_bytes<std::uint32_t>(in + 2 * kLanes + first) : 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k)
      x.v[k] = own.centred[(low >> (8 * k + shift(h)) & mask()) | (high >> (8 * k + 7 - h) & 1) << 2];
    return norm != 0.0f || (low | high) == 0;
  }
  // add(element, d) for what a block of rotated tiles decodes to, a thread's part.
  template <class Add>
  __device__ void decode(const float* y, const Block& b, const Shared& own, Add&& add) const {
    const std::uint32_t at = threadIdx.x % kTile;
    const float worth = b.norm * unit / static_cast<float>(b.tiles * kTile);
    rotate_tiles(y, b.tiles, at, [&](std::uint32_t tile, float h) {
      const std::uint32_t e = tile * kTile + at;
      if (e < b.count) add(b.begin + e, with_sign(h * worth, b, tile, at, own));
    });
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t n = blocks(piece.count), warp = device::warp();
    static_assert(kBlocks <= device::kWarps);
    begin(piece, own);
    if (warp < n) {
      const std::uint32_t rest = piece.count - warp * kBlock;
      const float norm = norm_of(a + warp * kBlock, rest < kBlock ? rest : kBlock);
      if (device::lane() == 0) {
        own.norms[warp] = norm;
        device::store_bytes(out + warp * sizeof norm, norm);
      }
    }
    encode_blocks(piece, a, out + n * sizeof(float), own);
    return bytes(piece.count);
  }
  // Of a piece that has begun, whose norms are in `own`: its indices, and where piece.keep, what is left in a.
  __device__ void encode_blocks(const device::Piece& piece, float* a, std::uint8_t* indices, Shared& own) const {
    const std::uint32_t n = blocks(piece.count), warp = device::warp();
    const std::uint32_t half = warp / kTiles, tile = warp % kTiles;  // of a warp's tile
    float* const y = own.y + half * kBlock + tile * kTile + 4 * device::lane();
    std::uint32_t next = 0;
    for (std::uint32_t first = 0; first < n; first += kAtOnce) {
      __syncthreads();
      const Block mine = block(first + half, piece.count, own);
      const bool rotates = tile < mine.tiles && mine.norm != 0.0f;
      if (rotates) {
        Four x;
#pragma unroll
        for (std::uint32_t k = 0; k < 4; ++k) {
          const std::uint32_t at = 4 * device::lane() + k, e = tile * kTile + at;
          x.v[k] = e < mine.count ? with_sign(a[mine.begin + e], mine, tile, at, own) : 0.0f;
        }
        rotate_tile(x);
        device::store<4>(y, x);
      }
      __syncthreads();
      const std::uint32_t column = threadIdx.x / kTile;  // a block, of 128 threads
      const Block whole = block(first + column, column < kAtOnce ? piece.count : 0, own);
      float* const block_y = own.y + column * kBlock;
      if (whole.norm != 0.0f) {
        float* const to = block_y + threadIdx.x % kTile;
        rotate_tiles(block_y, whole.tiles, threadIdx.x % kTile, [&](std::uint32_t j, float v) { to[j * kTile] = v; });
      }
      __syncthreads();
      const Random random = random_of(piece.counter, first, next, own);
      if (tile < mine.tiles)
        quantize_tile(own.y + warp * kTile, mine.norm, random, own, indices + (first * kTiles + warp) * tile_bytes());
      if (!piece.keep) continue;
      __syncwarp();  // the tile is this warp's alone
      if (rotates) {
        Four x = device::load<4>(y);
        rotate_tile(x);
        device::store<4>(y, x);
      }
      __syncthreads();
      if (whole.norm != 0.0f) decode(block_y, whole, own, [&](std::uint32_t e, float d) { a[e] -= d; });
    }
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t, float* acc,
                             Shared& own) const {
    const std::uint32_t n = blocks(piece.count), half = device::warp() / kTiles, tile = device::warp() % kTiles,
                        column = threadIdx.x / kTile;
    bool legal = true;
    begin(piece, own);
    if (threadIdx.x < n) {
      const float norm = device::load_bytes<float>(in + threadIdx.x * sizeof(float));
      legal = (norm >= kLeastNorm && norm <= kMostNorm) || __float_as_uint(norm) == 0;
      own.norms[threadIdx.x] = norm;
    }
    if (device::block_any(!legal)) return false;
    const std::uint8_t* indices = in + n * sizeof(float);
    for (std::uint32_t first = 0; first < n; first += kAtOnce) {
      const Block mine = block(first + half, piece.count, own);
      if (tile < mine.tiles) {
        Four x;
        legal = load_tile(indices + (first * kTiles + device::warp()) * tile_bytes(), mine.norm, own, x) && legal;
        rotate_tile(x);
        device::store<4>(own.y + device::warp() * kTile + 4 * device::lane(), x);
      }
      __syncthreads();
      const Block whole = block(first + column, column < kAtOnce ? piece.count : 0, own);
      if (whole.norm != 0.0f)
        decode(own.y + column * kBlock, whole, own, [&](std::uint32_t e, float d) { acc[e] += d; });
      __syncthreads();
    }
    return !device::block_any(!legal);
  }
};

}  // namespace crimp::thc
