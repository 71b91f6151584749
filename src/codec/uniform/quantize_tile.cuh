// A tile of 128 elements quantised and packed.
#pragma once
#include "codec/coding/bit_pack.hpp"
#include "codec/coding/dither_kernels.cuh"
#include "codec/uniform/uniform.hpp"

namespace crimp::uniform {

inline constexpr std::uint32_t kTile = bit_pack::kTile, kHalf = bit_pack::kLanes, kMostTiles = kPieceElements / kTile;
static_assert(kTile == dither::kTile && kHalf == dither::kLanes);

// A lane's codes in a tile, eight of `bits` bits: one word, or (wide: 9 to 16 bits) two with four codes each.
template <bool wide>
struct String {
  std::uint64_t all = 0;
  __device__ void put(std::uint32_t code, std::uint32_t bits, std::uint32_t h) {
    all |= static_cast<std::uint64_t>(code) << (bits * h);
  }
};
template <>
struct String<true> {
  std::uint64_t low = 0, high = 0;
  __device__ void put(std::uint32_t code, std::uint32_t bits, std::uint32_t h) {
    const std::uint64_t at = static_cast<std::uint64_t>(code) << (bits * (h % 4));
    low |= h < 4 ? at : 0;
    high |= h < 4 ? 0 : at;
  }
};

// The bytes of a lane's string: byte k is bytes[k w]. The half-warps of a warp have tiles 16 * bits bytes apart, which
// with 8 or 16 bits are the same banks of shared memory: one of them then takes every pair of bytes in the other order.
template <class Work>
__device__ inline void for_bytes(std::uint32_t first, std::uint32_t end, std::uint32_t bits, Work&& work) {
  const std::uint32_t turn = bits % 8 == 0 ? device::lane() / kHalf : 0;
  for (std::uint32_t k = first; k < end; ++k) work(k ^ turn);
}
__device__ inline void store_string(const String<false>& s, std::uint32_t bits, std::uint32_t w, std::uint8_t* bytes) {
  for_bytes(0, bits, bits, [&](std::uint32_t k) { bytes[k * w] = static_cast<std::uint8_t>(s.all >> (8 * k)); });
}
__device__ inline void store_string(const String<true>& s, std::uint32_t bits, std::uint32_t w, std::uint8_t* bytes) {
  const std::uint64_t first = bits == 16 ? s.low : s.low | s.high << (4 * bits), second = s.high >> (64 - 4 * bits);
  for_bytes(0, 8, bits, [&](std::uint32_t k) { bytes[k * w] = static_cast<std::uint8_t>(first >> (8 * k)); });
  for_bytes(8, bits, bits, [&](std::uint32_t k) { bytes[k * w] = static_cast<std::uint8_t>(second >> (8 * (k - 8))); });
}
// Quantises and packs the tile that begins at element `begin` of the piece, by a half-warp.
template <bool wide>
__device__ inline void quantize_tile(float* a, std::uint32_t begin, std::uint32_t count, const Grid& grid,
                                     std::uint32_t bits, int offset, Rounding rounding, const RandomCounter& counter,
                                     bool keep, std::uint8_t* bytes) {
  const std::uint32_t lane = device::lane() % kHalf, rest = count - begin;
  float* tile = a + begin;
  String<wide> string;
  const auto use = [&](std::uint32_t i, std::uint32_t h, std::uint32_t random) {
    const float x = tile[i];
    const std::int32_t q = quantize(x, grid, random);
    string.put(static_cast<std::uint32_t>(q + offset), bits, h);
    if (keep) tile[i] = x - dequantize(q, grid);
  };
  if (rest >= kTile) {
    dither::for_tile(counter, begin / kTile, rounding != Rounding::nearest, use);
    store_string(string, bits, kHalf, bytes + lane);
  } else {
    const std::uint32_t w = bit_pack::lanes(begin, count);
    if (lane >= w) return;
#pragma unroll 1
    for (std::uint32_t h = 0, i = lane; h < bit_pack::kPerLane && i < rest; ++h, i += w)
      use(i, h, rounding == Rounding::nearest ? 32768 : dither::bits16(counter, dither::kRounding, begin + i));
    store_string(string, bits, w, bytes + lane);
  }
}

// The codes of two elements, in the high halves of `a` and `b` but for `offset`, as halves of a word, held to
// [0, most]; these two are the same numbers in both halves.
__device__ inline std::uint32_t clamped_pair(std::uint32_t a, std::uint32_t b, std::uint32_t offset,
                                             std::uint32_t most) {
#if !defined(CRIMP_SIMT) && __CUDA_ARCH__ >= 900
  return __viaddmin_s16x2_relu(__byte_perm(a, b, 0x7632), offset, most);
#else
  const int more = static_cast<int>(offset) >> 16, top = static_cast<int>(most & 0xffff);
  const auto held = [&](std::uint32_t x) {
    return static_cast<std::uint32_t>(max(min((static_cast<int>(x) >> 16) + more, top), 0));
  };
  return __byte_perm(held(a), held(b), 0x5410);
#endif
}

// Codes q + offset of four or eight bits, of the whole tile that begins at `a`, by eight neighbouring threads; as
// quantize() and dequantize() of uniform.hpp have them. They are clamped last: the lowest and the highest level are
// whole steps from the base, and what is before the clamp is less than a step outside, since every |a - base| / step is
// at most the number of levels but for rounding; or it is far outside, where a norm is kMostNorm, and still no sum
// wraps. based: the base may be other than 0.
template <std::uint32_t bits, bool based, bool keep>
__device__ inline void quantize_pairs(float* a, std::uint32_t tile, const Grid& grid, int highest, int offset,
                                      const RandomCounter& counter, std::uint8_t* bytes) {
  const float base = based ? grid.base : 0.0f, width = grid.step, inverse = grid.inverse;
  const float bias = static_cast<float>((1 << 23) + offset);
  const std::uint32_t most = static_cast<std::uint32_t>(highest + offset) * 0x10001u,
                      more = static_cast<std::uint32_t>(offset) * 0x10001u;
  const dither::Pairs pairs(tile);
  // Where flip, a row is read before the even one below it.
  const std::uint32_t first = pairs.flip ? 1u << bits : 1u, second = pairs.flip ? 1u : 1u << bits;
  auto* const to = reinterpret_cast<std::uint16_t*>(bytes) + pairs.pair;
  auto *const to_first = to + kHalf / 2 * pairs.flip, *const to_second = to + (kHalf / 2 - kHalf / 2 * pairs.flip);
  const std::uint32_t pick_first = pairs.flip ? 0x31 : 0x20, pick_second = pairs.flip ? 0x20 : 0x31;
  std::uint32_t codes = 0;
  pairs(counter, tile, [&](std::uint32_t step, std::uint32_t i, const dither::PairBits& random) {
    device::Floats<2> x = device::load<2>(a + i);
    const auto level = [&](float y) {
      const float at = based ? (y - base) * inverse : fminf(y * inverse, 0x1p30f);
      return static_cast<std::uint32_t>(__float2int_rn(at));
    };
    const std::uint32_t two =
        clamped_pair(random.add_first(level(x.v[0])), random.add_second(level(x.v[1])), more, most);
    if constexpr (keep) {
      const auto left = [&](float y, std::uint32_t pick) {
        const float value = (__uint_as_float(__byte_perm(two, 0x4b000000, pick)) - bias) * width;
        return y - (based ? base + value : value);
      };
      x.v[0] = left(x.v[0], 0x7610);
      x.v[1] = left(x.v[1], 0x7632);
      device::store<2>(a + i, x);
    }
    codes = step % 2 == 0 ? two * first : codes + two * second;
    if (step % 2 == 0) return;
    if constexpr (bits == 4) {
      to[kHalf / 2 * (step / 2)] = static_cast<std::uint16_t>(__byte_perm(codes, 0, 0x20));
    } else {
      to_first[kHalf / 2 * (step - 1)] = static_cast<std::uint16_t>(__byte_perm(codes, 0, pick_first));
      to_second[kHalf / 2 * (step - 1)] = static_cast<std::uint16_t>(__byte_perm(codes, 0, pick_second));
    }
  });
}

}  // namespace crimp::uniform
