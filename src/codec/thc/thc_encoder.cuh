// The encoder of a piece. 128 threads have a block of 1024, four blocks at once: warps rotate its tiles, then a thread
// has the same place of all eight, does the other strides and quantises them where they are. Indices stay in shared
// memory, four bits each, until all blocks have them; what they decode to is taken off the residual.
#pragma once
#include "codec/thc/thc_exact_rotation.cuh"
#include "codec/thc/thc_float_rotation.cuh"

namespace crimp::thc {

struct Encoder : ExactRotation {
  using ExactRotation::ExactRotation;

  static constexpr std::uint32_t kEncodeBlocks = 3, kOtherBlocks = 2;
  // Words of random bits lie in planes, shifted so that lanes that read two of them at once meet other banks.
  static constexpr std::uint32_t kPlane = kTile + 8;
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
};

}  // namespace crimp::thc
