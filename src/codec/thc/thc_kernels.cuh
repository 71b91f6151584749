// THC in a block.
//
// The encoder rotates floats, whose bits depend on the order of additions: strides ascend as on the host. 128 threads
// have a block of 1024, four blocks at once. A warp does the strides below 128 of two tiles of 128, four neighbours a
// lane, in registers and by shuffles; then a thread has the same place of the block's eight tiles, does the others and
// quantises them where they are. Indices stay in shared memory, four bits each, until all blocks have them.
//
// What is decoded are integers of up to 16 bits, exact in any order: a warp has a block, an element's address is five
// bits of a row and five of a column, and H X H, which is the rotation, are 20 products on the tensor cores. The first
// leaves its elements where the second wants them. Sums of all payloads stay in registers, 32 of a lane, and the next
// payload's indices are on their way to shared memory while one is added; warps wait for each other once.
#pragma once
#include "codec/device/matrix.cuh"
#include "codec/device/piece_kernels.cuh"
#include "codec/thc/thc.hpp"

namespace crimp::thc {

inline constexpr std::uint32_t kTile = dither::kTile, kLanes = dither::kLanes, kTiles = kBlock / kTile,
                               kAtOnce = device::kThreads / kTile, kWarpsOfBlock = device::kWarps / kAtOnce,
                               kWords = kTile / 8;  // of a tile's indices, four bits each
static_assert(kAtOnce == 4 && kWarpsOfBlock == 4 && kTile == 4 * device::kWarp && kLeastBlock == kTile);
static_assert(kBlocks <= device::kWarps && kTiles * kWords == kTile);

struct Device : device::PieceDevice {
  static constexpr std::uint32_t kEncodeBlocks = 3, kDecodeBlocks = 3, kOtherBlocks = 2;
  static constexpr bool kDecodesAll = true;
  static constexpr std::uint32_t kDecodeThreads = kBlocks * device::kWarp;  // a warp has a block
  using Signs = std::uint8_t[(kBlocks + 1) / 2 * 2 * kTile];  // of a block's places in tiles: a bit for each tile
  // Words of random bits lie in planes, shifted so that lanes that read two of them at once meet other banks.
  static constexpr std::uint32_t kPlane = kTile + 8;
  // Of a decoded block: 1 / its coordinates, and what its values' bytes are too large by in all.
  struct Dimension {
    float inverse, excess;
  };
  struct Shared {
    alignas(16) float y[kAtOnce * kBlock];
    std::uint32_t random[kAtOnce][4 * kPlane];
    // Of blocks, per tile: rows of 16 bytes, a byte for elements e (high half) and e + 64, as in payloads of four bits.
    std::uint32_t words[kBlocks * kTile];
    alignas(16) Signs signs;
    float norms[kBlocks], scales[kBlocks];
    Dimension dimensions[kBlocks];
    float slope[64], offset[64];
  };
  using Two = device::Floats<2>;
  using Four = device::Floats<4>;
  // Of Tables, which as a parameter of kernels would be aligned too much.
  std::uint32_t bits_, granularity;
  float to_grid, unit, slope[64], offset[64];
  std::int8_t centred[kMostLevels];
  std::uint32_t values[kMostLevels / 4];  // bytes: centred + middle, from 0 on
  std::uint32_t middle, padding = 0;

  explicit Device(const Tables& t)
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

  // Of a block: the elements and tiles that it has.
  struct Extent {
    std::uint32_t count, tiles;
    __device__ Extent(std::uint32_t piece_count, std::uint32_t block)
        : count(min(piece_count - block * kBlock, kBlock)), tiles(dimension(count) / kTile) {}
  };

  // By threads from `first` on.
  __device__ static void draw_signs(const device::Piece& piece, std::uint32_t first, Signs& signs) {
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
  __device__ static std::uint32_t four_signs(const Signs& signs, std::uint32_t block, std::uint32_t in_tile) {
    return *reinterpret_cast<const std::uint32_t*>(signs + block * kTile + in_tile);
  }
  // x with the topmost bit of signs << by.
  __device__ static float with_sign(float x, std::uint32_t signs, int by) {
    return __uint_as_float(__float_as_uint(x) ^ (signs << by & 0x80000000u));
  }

  // By warps from kBlocks on; others find norms.
  __device__ void begin(const device::Piece& piece, Shared& own) const {
    static_assert((kBlocks + kBlocks / 2 / 2 + 1 + 2) <= device::kWarps);
    draw_signs(piece, kBlocks * device::kWarp, own.signs);
    const std::uint32_t at = threadIdx.x - (device::kThreads - 64);
    if (at < 64) {
      own.slope[at] = slope[at];
      own.offset[at] = offset[at];
    }
  }

  // By a warp; in all lanes.
  __device__ static float norm_of(const float* a, std::uint32_t count) {
    // Lanes have two neighbours of each 64: partial sums 2 lane and 2 lane + 1.
    const auto sums = [&](float up, float& low, float& high, float& top) {
      low = high = top = 0.0f;
      std::uint32_t i = 2 * device::lane();
#pragma unroll 4
      for (; i + 1 < count; i += kSumLanes) {
        const auto two = device::load<2>(a + i);
        const float x = two.v[0] * up, z = two.v[1] * up;
        top = fmaxf(fmaxf(top, fabsf(x)), fabsf(z));
        low += x * x;
        high += z * z;
      }
      if (i < count) {  // the last one of an odd number
        const float x = a[i] * up;
        top = fmaxf(top, fabsf(x));
        low += x * x;
      }
    };
    float low, high, top;
    sums(1.0f, low, high, top);
    const float largest = __uint_as_float(__reduce_max_sync(device::kAllLanes, __float_as_uint(top)));
    if (largest == 0.0f) return 0.0f;
    float back = 1.0f;
    if (largest < kSmall || !(largest < kLarge)) {
      const bool small = largest < kSmall;
      sums(small ? kUp : kDown, low, high, top);
      back = small ? kDown : kUp;
    }
#pragma unroll
    for (int by = device::kWarp / 2; by > 0; by /= 2) {
      low += __shfl_xor_sync(device::kAllLanes, low, by);
      high += __shfl_xor_sync(device::kAllLanes, high, by);
    }
    const float norm = sqrtf(low + high) * back;
    return norm < kLeastNorm ? 0.0f : norm < kMostNorm ? norm : kMostNorm;
  }

  __device__ static void butterfly(float& a, float& b) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  }
  // Strides 1 to 64 of tiles, of each of which a lane has four neighbours. other - x and x + other are one
  // multiplication and addition, whose product is exact.
  template <int n>
  __device__ static void rotate_tiles(Four (&x)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      butterfly(x[i].v[0], x[i].v[1]);
      butterfly(x[i].v[2], x[i].v[3]);
      butterfly(x[i].v[0], x[i].v[2]);
      butterfly(x[i].v[1], x[i].v[3]);
    }
#pragma unroll
    for (std::uint32_t by = 1; by < device::kWarp; by *= 2) {
      const float sign = device::lane() & by ? -1.0f : 1.0f;
#pragma unroll
      for (int k = 0; k < 4 * n; ++k) {
        float& own = x[k / 4].v[k % 4];
        own = fmaf(own, sign, __shfl_xor_sync(device::kAllLanes, own, static_cast<int>(by)));
      }
    }
  }
  // The other strides, of one place of all tiles.
  __device__ static void rotate_places(float (&v)[kTiles]) {
#pragma unroll
    for (std::uint32_t stride = 1; stride < kTiles; stride *= 2)
#pragma unroll
      for (std::uint32_t j = 0; j < kTiles; ++j)
        if (!(j & stride)) butterfly(v[j], v[j + stride]);
  }

  // quantize() with the index above bit 16 and below bit 20. What is added makes of a float below 2^23 an integer, cut;
  // `first` is kFirst, which takes that off where a line of the tables begins: the compiler, if it knew, would do so
  // for each of the two on its own.
  static constexpr std::uint32_t kFirst = 0u - 4 * 0x4b000000u;
  __device__ std::uint32_t index_of(float y, float scale, std::uint32_t random, std::uint32_t first,
                                    const Shared& own) const {
    const float g = static_cast<float>(granularity), u = fminf(fmaxf(y * scale + 0.5f * g, 0.0f), g);
    const std::uint32_t k = 4 * __float_as_uint(__fadd_rz(u, 0x1p23f)) + first;
    const auto at = [&](const float(&of)[64]) {
      return *reinterpret_cast<const float*>(reinterpret_cast<const std::uint8_t*>(of) + k);
    };
    return __float_as_uint(__fadd_rz(at(own.slope) * u + at(own.offset), 0x1p23f)) + random;
  }
  // Of a thread's eight tiles, to a word of one of them with the indices of eight threads.
  __device__ static std::uint32_t gather(const std::uint32_t (&fixed)[kTiles]) {
    const auto bytes = [&](std::uint32_t j) {
      return __byte_perm(__byte_perm(fixed[j], fixed[j + 1], 0x0062), __byte_perm(fixed[j + 2], fixed[j + 3], 0x0062),
                         0x5410);
    };
    const auto from = [&](std::uint32_t word, int by) { return __shfl_xor_sync(device::kAllLanes, word, by); };
    const std::uint32_t low = bytes(0), high = bytes(4), lane = device::lane();
    const bool upper = lane / kLanes != 0;
    const std::uint32_t kept = upper ? high : low, other = from(upper ? low : high, kLanes),
                        pairs = kept * (upper ? 1 : 16) + other * (upper ? 16 : 1),
                        two = __byte_perm(pairs, from(pairs, 2), lane & 2 ? 0x3276 : 0x5410);
    return __byte_perm(two, from(two, 1), lane & 1 ? 0x3715 : 0x6240);
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t n = blocks(piece.count), warp = device::warp();
    begin(piece, own);
    if (warp < n) {
      const float norm = norm_of(a + warp * kBlock, Extent(piece.count, warp).count);
      if (device::lane() == 0) {
        set_norm(piece, warp, norm, own);
        device::store_bytes(out + warp * sizeof norm, norm);
      }
    }
    encode_blocks(piece, a, out + n * sizeof(float), own);
    return bytes(piece.count);
  }
  __device__ Dimension dimension_of(std::uint32_t tiles) const {
    const std::uint32_t d = tiles * kTile;
    return {1.0f / static_cast<float>(d), static_cast<float>(middle * d)};
  }
  __device__ void set_norm(const device::Piece& piece, std::uint32_t block, float norm, Shared& own) const {
    own.norms[block] = norm;
    own.scales[block] = to_grid / norm;
    own.dimensions[block] = dimension_of(Extent(piece.count, block).tiles);
  }
  // Of a piece that has begun, whose norms are in `own`: its indices, and where piece.keep, what is left in a.
  __device__ void encode_blocks(const device::Piece& piece, float* a, std::uint8_t* indices, Shared& own) const {
    const std::uint32_t n = blocks(piece.count);
#pragma unroll 1
    for (std::uint32_t first = 0; first < n; first += kAtOnce) {
      const std::uint32_t slot = device::warp() / kWarpsOfBlock, block = first + slot;
      __syncthreads();
      const bool rotates = block < n && own.norms[block] != 0.0f;
      if (rotates) rotate_and_draw(piece, a, block, own.y + slot * kBlock, own.random[slot], own);
      __syncthreads();
      if (block < n) {
        std::uint32_t word = 0, at = threadIdx.x % kTile;
        if (rotates) {
          const std::uint32_t lane = device::lane(), tile = lane / kLanes * 4 + lane % 4;
          word = indices_of(own.y + slot * kBlock, own.random[slot], own.scales[block], own);
          if (tile >= Extent(piece.count, block).tiles) word = 0;
          at = tile * kWords + device::warp() % kWarpsOfBlock * 4 + lane % kLanes / 4;
        }
        own.words[block * kTile + at] = word;
      }
    }
    __syncthreads();
    store_indices(static_cast<std::uint32_t>(coordinates(piece.count) / kTile), indices, own);
    if (!piece.keep) return;
    const std::uint32_t thread = device::afresh(threadIdx.x), lane = thread % device::kWarp, block = block_of(thread);
    if (block >= n) return;
    const float norm = own.norms[block];
    if (norm == 0.0f) return;
    const std::uint32_t* const words = own.words + block * kTile + first_word(lane);
    std::uint32_t four[4];
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) four[i] = words[i / 2 * 4 * kWords + i % 2 * 4];
    const std::uint32_t e0 = first_element(lane);
    const Dimension dimension = own.dimensions[block];
    const float worth = norm * unit * dimension.inverse;
    a += block * kBlock + e0;
    rotate_back<Apart::rows>(lane, four, signed_of(lane), dimension.excess,
                             reinterpret_cast<uint4*>(own.y)[block * device::kWarp + lane],
                             [&](std::uint32_t m, int z, int j, const float(&sums)[4]) {
                               const std::uint32_t signs = signs_of(own.signs, block, e0, m);
#pragma unroll
                               for (int i = 0; i < 2; ++i) {
                                 float* const at = a + element(m, z, i) + 2 * j;
                                 Two left = device::load<2>(at);
#pragma unroll
                                 for (int k = 0; k < 2; ++k)
                                   left.v[k] -= with_sign(sums[2 * k + i] * worth, signs, sign_at(z, i, 2 * j + k));
                                 device::store<2>(at, left);
                               }
                             });
  }
  // The strides within two tiles of a block, and the random bits of a place of each of 16 neighbouring ones.
  __device__ static void rotate_and_draw(const device::Piece& piece, const float* a, std::uint32_t block, float* y,
                                         std::uint32_t* random, const Shared& own) {
    const std::uint32_t tile = device::warp() % kWarpsOfBlock * 2, in_tile = 4 * device::lane();
    const std::uint32_t signs = four_signs(own.signs, block, in_tile) << (6 - tile);
    Four x[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t e = block * kBlock + (tile + i) * kTile + in_tile;
      if (e + 4 <= piece.count) {
        x[i] = device::load<4>(a + e);
      } else {
#pragma unroll
        for (std::uint32_t k = 0; k < 4; ++k) x[i].v[k] = e + k < piece.count ? a[e + k] : 0.0f;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) x[i].v[k] = with_sign(x[i].v[k], signs, 25 - 8 * k - i);
    }
    rotate_tiles(x);
    // The two halves of a tile are read at once: they are in different banks.
#pragma unroll
    for (int i = 0; i < 2; ++i) device::store<4>(y + (tile + i) * kTile + (in_tile ^ in_tile / 64 * 16), x[i]);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    constexpr bool by_one = false;  // spills there
#else
    constexpr bool by_one = true;
#endif
    const std::uint32_t at = threadIdx.x % kTile;
    const dither::Words words =
        dither::philox<dither::kRounds, by_one>(piece.counter, dither::kRounding, block * kTile + at);
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) random[i * kPlane + at] = words.w[i];
  }
  // Of a place of all tiles: a warp has lanes 0 to 15 of a sixteenth, and of that 64 elements behind.
  __device__ std::uint32_t indices_of(const float* y, const std::uint32_t* random, float scale,
                                      const Shared& own) const {
    const std::uint32_t h = device::warp() % kWarpsOfBlock, upper = device::lane() / kLanes,
                        lane = device::lane() % kLanes;
    y += ((h * kLanes + lane) ^ upper * 16) + upper * 64;
    const auto* const bits =
        reinterpret_cast<const std::uint16_t*>(random + (h / 2 + upper * 2) * kPlane + lane) + h % 2;
    float v[kTiles];
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j) v[j] = y[j * kTile];
    rotate_places(v);
    std::uint32_t fixed[kTiles];
    const std::uint32_t table = device::afresh(kFirst);
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j) fixed[j] = index_of(v[j], scale, bits[j * 2 * kLanes], table, own);
    return gather(fixed);
  }
  // The payload's words of indices, four bytes each.
  __device__ void store_indices(std::uint32_t tiles, std::uint8_t* to, const Shared& own) const {
    const bool whole = reinterpret_cast<std::uintptr_t>(to) % 4 == 0;
    const auto store_word = [&](std::uint32_t i, std::uint32_t word) {
      if (whole) reinterpret_cast<std::uint32_t*>(to)[i] = word;
      else device::store_bytes(to + 4 * i, word);
    };
    if (bits_ == 4) {
      for (std::uint32_t i = threadIdx.x; i < tiles * kWords; i += device::kThreads) store_word(i, own.words[i]);
      return;
    }
    for (std::uint32_t i = threadIdx.x; i < tiles * kWords; i += device::kThreads) {
      const std::uint32_t r = i % kWords / 4;
      if (r >= bits_) continue;
      const std::uint32_t* const words = own.words + i / kWords * kWords + i % 4;
      const std::uint32_t w[4] = {words[0], words[4], words[8], words[12]};
      std::uint32_t word;
      if (r < 2) word = ((r ? w[1] : w[0]) & 0x33333333) << 2 | ((r ? w[3] : w[2]) & 0x33333333);
      else word = (w[0] & 0x44444444) << 1 | (w[1] & 0x44444444) | (w[2] & 0x44444444) >> 1 | (w[3] & 0x44444444) >> 2;
      store_word(i / kWords * 4 * bits_ + i % kWords, word);
    }
  }

  // Ten of an encoder's warps decode. Of warps w, w + 4, ... that share a scheduler it would be two times three and two
  // times two: which ones, neighbouring blocks take in turn.
  __device__ static std::uint32_t block_of(std::uint32_t thread) {
    return (thread / device::kWarp + (blockIdx.x & 4) / 2) % device::kWarps;
  }

  // Rows and columns of a decoded block: element bits 4, 5, 7, 0, 6 are a row's, lowest first, 8, 2, 3, 1, 9 a
  // column's. So a lane comes by whole words of indices, and gets four neighbours.
  __device__ static std::uint32_t first_tile(std::uint32_t lane) { return lane / 2 % 2 + lane / 4 % 2 * 2; }
  __device__ static std::uint32_t first_word(
      std::uint32_t lane) {  // of four: 4 and 4 kTile / 8 words behind each other
    return first_tile(lane) * kWords + lane % 2 * 8 + lane / 8;
  }

  // What half a word of indices stand for: the values' bytes.
  struct Bytes {
    std::uint32_t low, high;
  };
  __device__ Bytes values_of(std::uint32_t word) const {
    const std::uint32_t at = word & 0x77777777, upper = (word >> 1 & 0x44444444) | 0x32103210;
    const auto half = [&](std::uint32_t by) {
      return device::pick_bytes(device::pick_bytes(values[0], values[1], at >> by),
                                device::pick_bytes(values[2], values[3], at >> by), upper >> by);
    };
    return {half(0), half(16)};
  }
  // What a lane has of H, {h, h, h, -h}: as the left side of the first products, in pairs as the right side of the
  // others.
  struct Signed {
    std::uint32_t h[4];
  };
  __device__ static Signed signed_of(std::uint32_t lane) {
    const std::uint32_t group = lane / 4, in_group = lane % 4;
    // Bytes are halves below the smallest normal one, in units of 2^-24; H is 2^12 or -2^12.
    const std::uint32_t h =
        0x6c006c00 | ((__popc(group & (2 * in_group)) & 1 ? 0x80008000u : 0) ^ (group & 1 ? 0x80000000u : 0));
    return {{h, h, h, h ^ 0x80008000u}};
  }
  // The first element of a lane, and which ones use() below is told of.
  __device__ static std::uint32_t first_element(std::uint32_t lane) {
    return 4 * (lane % 4) + 16 * (lane / 4 % 4) + 128 * (lane / 16);
  }
  __device__ static constexpr std::uint32_t element(std::uint32_t m, std::uint32_t z, std::uint32_t i) {
    return 64 * m + 512 * z + kBlock / 4 * i;
  }
  // Where barriers of a warp keep the compiler from having more on its way than registers hold. Found by trying: with
  // another one some decoder spills.
  enum class Apart { words, rows };
  template <class To>
  __device__ static constexpr Apart apart_with() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    if (std::is_same_v<To, float*>) return Apart::words;
#endif
    return Apart::rows;
  }
  // A warp: use(m, z, j, sums) for what the indices of a block decode to, in units of the norm's worth and as the
  // rotation has it, before signs: sums[2 k + i] is element first_element + element(m, z, i) + 2 j + k. `aside` is the
  // lane's.
  template <Apart apart, class Use>
  __device__ void rotate_back(std::uint32_t lane, const std::uint32_t (&words)[4], const Signed& by,
                              const float& excess, uint4& aside, Use&& use) const {
    // Row bit 4 first, by sums and differences of bytes: what follows are sums of 16 that a half has exactly.
    std::uint32_t half[4];
#pragma unroll
    for (int q = 0; q < 4; q += 2) {
      if (apart == Apart::words) __syncwarp();
      const std::uint32_t a = words[q], b = words[q + 1];
      const Bytes first = values_of((a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0)),
                  second = values_of((a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4);
      half[q] = first.low + second.low;
      half[q + 1] = first.high + second.high;
      reinterpret_cast<uint2*>(&aside)[q / 2] =
          make_uint2(first.low - second.low + 0x40404040, first.high - second.high + 0x40404040);
    }
#pragma unroll
    for (std::uint32_t m = 0; m < 2; ++m) {
      if (apart == Apart::rows) __syncwarp();
      if (m != 0) {
        const uint4 four = aside;
        half[0] = four.x, half[1] = four.y, half[2] = four.z, half[3] = four.w;
      }
      std::uint32_t rows[4][2] = {};  // halves of 16 rows, of 8 columns
#pragma unroll
      for (int q = 0; q < 4; ++q)
        device::add_product(by.h, device::pick_bytes(half[q], 0, 0x4140), device::pick_bytes(half[q], 0, 0x4342),
                            rows[q]);
      const std::uint32_t low[4] = {rows[0][0], rows[0][1], rows[1][0], rows[1][1]};
      std::uint32_t high[4] = {rows[2][0], rows[2][1], rows[3][0], rows[3][1]};
      float of_low[2][4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) device::add_product(low, by.h[2 * j], by.h[2 * j + 1], of_low[j]);
#pragma unroll
      for (int z = 0; z < 2; ++z) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = of_low[j][i];
          device::add_product(high, by.h[2 * j], by.h[2 * j + 1], sums);
          // What bytes have too much is alike in all, so all in one element.
          if (z == 0 && j == 0 && lane == 0) sums[0] -= m ? 0x1p15f : excess;
          use(m, z, j, sums);
        }
        // Then the columns that have the other half of these with the other sign.
#pragma unroll
        for (int i = 0; i < 4; ++i) high[i] ^= 0x80008000u;
      }
    }
  }
  // with_sign(x, signs_of(m), sign_at(z, i, k)) for the k-th of four neighbours.
  __device__ static std::uint32_t signs_of(const Signs& signs, std::uint32_t block, std::uint32_t e0, std::uint32_t m) {
    return four_signs(signs, block, e0 % kTile + 64 * m) << (1 - e0 / kTile);
  }
  __device__ static constexpr int sign_at(int z, int i, int k) { return 30 - 4 * z - 8 * k - 2 * i; }

  // threadIdx.x, asked for anew: kept in a register it would be one too many.
  __device__ static std::uint32_t this_thread() {
#ifdef CRIMP_SIMT
    return threadIdx.x;
#else
    std::uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
#endif
  }
  // Of a warp: where its block's words are, in as many payloads as it has lanes, and what a unit of its sums is worth.
  struct Bodies {
    const std::uint8_t* words[device::kWarp];
    float worth[device::kWarp], excess, inverse;
    std::uint32_t tiles, words_at;
  };
  // Slots for a lane's words of a payload: a tile's are two, and a third of three bits. Those of tiles that a block
  // does not have stay zero.
  struct Fetched {
    float words[4][kDecodeThreads], third[2][kDecodeThreads];
  };
  struct DecodeShared {
    alignas(16) Signs signs;
    alignas(16) Signed h[device::kWarp];
    uint4 aside[kDecodeThreads];
    Bodies bodies[kBlocks];
    Fetched fetched;
    alignas(16) std::uint8_t to[sizeof(device::Out)];
    std::uint32_t count;
  };
  // A lane's words of payload r, on their way.
  __device__ void fetch(std::uint32_t thread, std::uint32_t r, DecodeShared& own) const {
    const std::uint32_t block = thread / device::kWarp, lane = thread % device::kWarp, tiles = own.bodies[block].tiles;
    const std::uint8_t* const words = device::global(own.bodies[block].words[r % device::kWarp]);
    const bool in_words = reinterpret_cast<std::uintptr_t>(words) % 4 == 0;
    const auto copy = [&](float* slots, const std::uint8_t* p) {
      device::copy_async<1>(slots + thread, reinterpret_cast<const float*>(p));
    };
    Fetched& to = own.fetched;
    if (in_words && bits_ == 4 && tiles == kTiles) {  // what most are
      const std::uint8_t* const at = words + first_tile(lane) * (kTile / 2) + lane / 8 * 4 + lane % 2 * 2 * kLanes;
      copy(to.words[0], at);
      copy(to.words[1], at + kLanes);
      copy(to.words[2], at + 2 * kTile);
      copy(to.words[3], at + 2 * kTile + kLanes);
      return;
    }
    const std::uint8_t* tile =
        words + first_tile(lane) * tile_bytes() + lane / 8 * 4 + (bits_ == 4 ? lane % 2 * 2 * kLanes : 0);
#pragma unroll 1
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (first_tile(lane) + 4 * i >= tiles) break;
#pragma unroll 1
      for (std::uint32_t row = 0; row < 3; ++row) {
        if (row == 2 && bits_ != 3) break;
        float* const slots = row < 2 ? to.words[2 * i + row] : to.third[i];
        if (in_words) copy(slots, tile + row * kLanes);
        else slots[thread] = device::load_bytes<float>(tile + row * kLanes);
      }
      tile += 4 * tile_bytes();
    }
  }
  // Payloads [first, first + lanes), if there are any, and the first one's words.
  template <class Payloads>
  __device__ void open(const Payloads& payloads, std::uint32_t first, DecodeShared& own) const {
    if (first >= payloads.count) return;
    const std::uint32_t thread = this_thread(), lane = thread % device::kWarp, block = thread / device::kWarp;
    const bool there = first + lane < payloads.count;
    Bodies& bodies = own.bodies[block];
    float norm = 0.0f;
    __syncwarp();
    if (there) {
      const std::uint8_t* const in = payloads[first + lane].in;
      norm = device::load_bytes<float>(in + block * static_cast<std::uint32_t>(sizeof(float)));
      bodies.words[lane] = in + bodies.words_at;
    }
    __syncwarp();
    fetch(thread, first, own);
    if (there && __float_as_uint(norm) != 0 && !(norm >= kLeastNorm && norm <= kMostNorm))
      payloads.malformed(first + lane);
    bodies.worth[lane] = norm * unit * bodies.inverse;
    __syncwarp();
  }
  // The words as of four bits.
  __device__ void words_of(std::uint32_t thread, const Fetched& from, std::uint32_t (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __float_as_uint(from.words[i][thread]);
    if (bits_ == 4) return;
    const std::uint32_t upper = thread % 2 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = to[i] >> (2 - upper) & 0x33333333;
    if (bits_ != 3) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t third = __float_as_uint(from.third[i][thread]) << upper;
      to[2 * i] |= third >> 1 & 0x44444444;
      to[2 * i + 1] |= third & 0x44444444;
    }
  }
  // use(x, e) for the sums of a lane that begin with element e.
  using LaneSums = Four[2][2][2];
  template <class Use>
  __device__ static void for_sums(std::uint32_t e0, LaneSums& sums, Use&& use) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int z = 0; z < 2; ++z)
#pragma unroll
        for (int i = 0; i < 2; ++i) use(sums[m][z][i], e0 + element(m, z, i));
  }
  // Adds all payloads, of which the first are open. signed_: with their signs; else as the rotation has them, because
  // signs are alike in all payloads: sums get theirs in the end. Only whether a zero is negative would not be the same.
  template <bool signed_, class To, class Payloads>
  __device__ void add_payloads(const Payloads& payloads, LaneSums& sum, DecodeShared& own) const {
    std::uint32_t r = 0;
#pragma unroll 1
    while (r < payloads.count) {
#pragma unroll 1
      do {
        const std::uint32_t thread = this_thread(), block = thread / device::kWarp, lane = thread % device::kWarp;
        device::wait_async();
        const float worth = own.bodies[block].worth[r % device::kWarp];
        std::uint32_t words[4];
        words_of(thread, own.fetched, words);
        const bool nothing = worth == 0.0f;
        if (nothing && (words[0] | words[1] | words[2] | words[3]) != 0) payloads.malformed(r);
        ++r;  // the slots are free: what they held is in registers
        if (r % device::kWarp != 0 && r < payloads.count) fetch(thread, r, own);
        if (signed_ && nothing) continue;  // what is -0 stays so
        rotate_back<apart_with<To>()>(lane, words, own.h[lane], own.bodies[block].excess, own.aside[thread],
                                      [&](std::uint32_t m, int z, int j, const float(&sums)[4]) {
#pragma unroll
                                        for (int c = 0; c < 4; ++c) {
                                          float d = sums[c] * worth;
                                          const int i = c % 2, k = 2 * j + c / 2;
                                          if constexpr (signed_)
                                            d = with_sign(d, signs_of(own.signs, block, first_element(lane), m),
                                                          sign_at(z, i, k));
                                          sum[m][z][i].v[k] += d;
                                        }
                                      });
      } while (r % device::kWarp != 0 && r < payloads.count);
      open(payloads, r, own);
    }
  }
  // A warp has a block, its sums in registers.
  template <class Payloads, class To>
  __device__ void decode_all(const device::Piece& piece, const Payloads& payloads, const To& to, bool accumulate, int,
                             DecodeShared& own) const {
    const std::uint32_t n = blocks(piece.count), block = device::warp(), lane = device::lane();
    if (block < n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) own.fetched.words[i][threadIdx.x] = 0.0f;
#pragma unroll
      for (int i = 0; i < 2; ++i) own.fetched.third[i][threadIdx.x] = 0.0f;
      if (lane == 0) {
        Bodies& bodies = own.bodies[block];
        bodies.tiles = Extent(piece.count, block).tiles;
        const Dimension dimension = dimension_of(bodies.tiles);
        bodies.excess = dimension.excess;
        bodies.inverse = dimension.inverse;
        bodies.words_at = n * static_cast<std::uint32_t>(sizeof(float)) + block * kTiles * tile_bytes();
      }
      open(payloads, 0, own);
    }
    if (block == 0) {
      own.h[lane] = signed_of(lane);
      if (lane == 0) {
        own.count = piece.count;
        *reinterpret_cast<To*>(own.to) = to;
      }
    }
    draw_signs(piece, 0, own.signs);
    __syncthreads();
    if (block >= n) return;
    if constexpr (std::is_same_v<To, float*>) {
      if (accumulate) {
        LaneSums sum;
        begin_sums(to, own, sum);
        add_payloads<true, To>(payloads, sum, own);
        store_sums<To>(own, sum);
        return;
      }
    }
    LaneSums sum = {};
    add_payloads<false, To>(payloads, sum, own);
    const std::uint32_t thread = this_thread();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t signs = signs_of(own.signs, thread / device::kWarp, first_element(thread % device::kWarp), m);
#pragma unroll
      for (int z = 0; z < 2; ++z)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int k = 0; k < 4; ++k) sum[m][z][i].v[k] = with_sign(sum[m][z][i].v[k], signs, sign_at(z, i, k)) + 0.0f;
    }
    store_sums<To>(own, sum);
  }
  // Of what a lane's four neighbours are loaded from or stored to: whether all are there and can be had at once.
  template <class To>
  __device__ static bool whole(const To& to, std::uint32_t thread, std::uint32_t count) {
    return device::in_quads(to) && (thread / device::kWarp + 1) * kBlock <= count;
  }
  __device__ static std::uint32_t first_sum(std::uint32_t thread) {
    return thread / device::kWarp * kBlock + first_element(thread % device::kWarp);
  }
  __device__ static void begin_sums(const float* from, DecodeShared& own, LaneSums& sums) {
    const std::uint32_t thread = this_thread(), count = own.count;
    if (whole(from, thread, count)) {
      for_sums(first_sum(thread), sums, [&](Four& x, std::uint32_t e) { x = device::load<4>(from + e); });
      return;
    }
    for_sums(first_sum(thread), sums, [&](Four& x, std::uint32_t e) {
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k) x.v[k] = e + k < count ? from[e + k] : 0.0f;
    });
  }
  template <class To>
  __device__ static void store_sums(DecodeShared& own, LaneSums& sums) {
    To to = *reinterpret_cast<const To*>(own.to);
    if constexpr (std::is_same_v<To, device::Out>) to.at = device::global(to.at);
    else to = device::global(to);
    const std::uint32_t thread = this_thread(), count = own.count;
    if (whole(to, thread, count)) {
      for_sums(first_sum(thread), sums, [&](const Four& x, std::uint32_t e) { device::put<4>(to, e, x); });
      return;
    }
    float* const aside = reinterpret_cast<float*>(own.aside + thread);
    for_sums(first_sum(thread), sums, [&](const Four& x, std::uint32_t e) {
      device::store<4>(aside, x);
#pragma unroll 1
      for (std::uint32_t k = 0; k < 4 && e + k < count; ++k) device::put<1>(to, e + k, {aside[k]});
    });
  }
};

}  // namespace crimp::thc
