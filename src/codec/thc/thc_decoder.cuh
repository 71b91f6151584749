// The decoder of all payloads of a piece: a warp has a block. Sums stay in registers, 32 of a lane, and the next
// payload's indices are on their way to shared memory while one is added; warps wait for each other once.
#pragma once
#include "codec/thc/thc_encoder.cuh"

namespace crimp::thc {

// Derives from the encoder so that a kernel's parameter has the tables once.
struct Decoder : Encoder {
  using Encoder::Encoder;

  static constexpr std::uint32_t kDecodeBlocks = 3;
  static constexpr bool kDecodesAll = true;
  static constexpr std::uint32_t kDecodeThreads = kBlocks * device::kWarp;  // a warp has a block

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
