// What THC's encoder, decoder and integer sums share: butterflies, the signs D, indices. Included by files that Highway compiles once per target.
#include <hwy/highway.h>

#include "codec/dither-inl.h"
#include "codec/thc.hpp"

// GCC leaves large lambdas out of line, and with them accumulators in memory.
#ifndef CRIMP_STEP
#define CRIMP_STEP HWY_ATTR __attribute__((always_inline))
#endif

#if defined(CRIMP_THC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_THC_INL_H
#undef CRIMP_THC_INL_H
#else
#define CRIMP_THC_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::thc::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using dither::HWY_NAMESPACE::for_tile;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using Du = hn::RebindToUnsigned<Df>;
using D8 = hn::CappedTag<std::int8_t, 64>;
using D16 = hn::Repartition<std::int16_t, D8>;
constexpr std::uint32_t kN = hn::MaxLanes(Df()), kN8 = hn::MaxLanes(D8()), kN16 = kN8 / 2;
using Vf = hn::Vec<Df>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using dither::HWY_NAMESPACE::V32;

template <class V>
HWY_INLINE void butterfly(V& a, V& b) {
  const V sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}
// One stride of the two vectors' concatenation, which is left rotated by one address bit.
template <class D, class V>
HWY_INLINE void unshuffled_butterfly(D d, V& a, V& b) {
  const V even = hn::ConcatEven(d, b, a), odd = hn::ConcatOdd(d, b, a);
  a = hn::Add(even, odd);
  b = hn::Sub(even, odd);
}

// All strides of the concatenations of v[0] and v[1], v[2] and v[3], ... Side by side: one pair after another would wait for its own results.
HWY_INLINE void pair_butterflies(Vf* v) {
#if HWY_TARGET <= HWY_AVX3
  // Unshuffled by groups of four, then three times within these, then twice by groups again: shuffles within groups are the cheaper ones.
  const auto sum = [&](Vf& a, Vf& b, __m512 even, __m512 odd) CRIMP_STEP { a = Vf{even}, b = Vf{odd}, butterfly(a, b); };
  const auto groups = [&](const Vf& a, const Vf& b) CRIMP_STEP { return _mm512_shuffle_f32x4(a.raw, b.raw, 0x88); };
  const auto odd_groups = [&](const Vf& a, const Vf& b) CRIMP_STEP { return _mm512_shuffle_f32x4(a.raw, b.raw, 0xdd); };
  for (const int j : {0, 2, 4, 6}) {
    const __m512 even = groups(v[j], v[j + 1]);
    v[j + 1].raw = odd_groups(v[j], v[j + 1]);
    v[j].raw = even;
  }
  for (int i = 0; i < 3; ++i)
    for (const int j : {0, 2, 4, 6}) sum(v[j], v[j + 1], _mm512_shuffle_ps(v[j].raw, v[j + 1].raw, 0x88), _mm512_shuffle_ps(v[j].raw, v[j + 1].raw, 0xdd));
  for (int i = 0; i < 2; ++i)
    for (const int j : {0, 2, 4, 6}) sum(v[j], v[j + 1], groups(v[j], v[j + 1]), odd_groups(v[j], v[j + 1]));
#else
  for (std::uint32_t stride = 1; stride < 2 * kN; stride *= 2)
    for (const int j : {0, 2, 4, 6}) unshuffled_butterfly(Df(), v[j], v[j + 1]);
#endif
}

// All strides from `stride` up to d / 2 in place, ascending.
HWY_INLINE void long_strides(std::uint32_t d, std::uint32_t stride, float* y) {
  const Df df;
  while (stride < d) {
    if (stride * 8 <= d) {
      for (std::uint32_t group = 0; group < d; group += 8 * stride)
        for (std::uint32_t i = group; i < group + stride; i += kN) {
          Vf v[8];
          for (std::uint32_t j = 0; j < 8; ++j) v[j] = hn::Load(df, y + i + j * stride);
          for (const std::uint32_t j : {0, 2, 4, 6}) butterfly(v[j], v[j + 1]);
          for (const std::uint32_t j : {0, 1, 4, 5}) butterfly(v[j], v[j + 2]);
          for (const std::uint32_t j : {0, 1, 2, 3}) butterfly(v[j], v[j + 4]);
          for (std::uint32_t j = 0; j < 8; ++j) hn::Store(v[j], df, y + i + j * stride);
        }
      stride *= 8;
    } else if (stride * 4 <= d) {
      for (std::uint32_t group = 0; group < d; group += 4 * stride)
        for (std::uint32_t i = group; i < group + stride; i += kN) {
          Vf v[4];
          for (std::uint32_t j = 0; j < 4; ++j) v[j] = hn::Load(df, y + i + j * stride);
          butterfly(v[0], v[1]);
          butterfly(v[2], v[3]);
          butterfly(v[0], v[2]);
          butterfly(v[1], v[3]);
          for (std::uint32_t j = 0; j < 4; ++j) hn::Store(v[j], df, y + i + j * stride);
        }
      stride *= 4;
    } else {
      for (std::uint32_t group = 0; group < d; group += 2 * stride)
        for (std::uint32_t i = group; i < group + stride; i += kN) {
          Vf a = hn::Load(df, y + i), b = hn::Load(df, y + i + stride);
          butterfly(a, b);
          hn::Store(a, df, y + i);
          hn::Store(b, df, y + i + stride);
        }
      stride *= 2;
    }
  }
}

// y = H x for d elements, where load(tile, i) gives x[tile + i, tile + i + kN), i < dither::kTile.
template <class Load>
HWY_INLINE void walsh_hadamard(std::uint32_t d, Load&& load, float* y) {
  const Df df;
  constexpr std::uint32_t kGroup = 8 * kN;  // elements in registers: two strides more than what a pair of vectors has
  for (std::uint32_t tile = 0; tile < d; tile += dither::kTile)
    for (std::uint32_t group = 0; group < dither::kTile; group += kGroup) {
      Vf v[8];
      for (std::uint32_t j = 0; j < 8; ++j) v[j] = load(tile, group + j * kN);
      pair_butterflies(v);
      for (const std::uint32_t j : {0, 1, 4, 5}) butterfly(v[j], v[j + 2]);
      for (const std::uint32_t j : {0, 1, 2, 3}) butterfly(v[j], v[j + 4]);
      for (std::uint32_t j = 0; j < 8; ++j) hn::Store(v[j], df, y + tile + group + j * kN);
    }
  long_strides(d, kGroup, y);
}

// The signs D of a piece's blocks, two blocks a row.
struct Signs {
  alignas(64) std::uint32_t words[(kBlocks + 1) / 2][dither::kTile];
  HWY_INLINE Signs(const Place& place, std::uint32_t blocks) {
    for (std::uint32_t row = 0; row < (blocks + 1) / 2; ++row)
      for_tile({place.element, place.step, 0}, dither::kShared, row, [&](std::size_t half, std::size_t lane, V32 bits) CRIMP_STEP {
        hn::Store(bits, Du(), words[row] + half * dither::kLanes + lane);
      });
  }
  // x[tile + i, tile + i + kN) of the block with its signs, i < dither::kTile.
  HWY_INLINE Vf apply(std::uint32_t block, std::uint32_t tile, std::uint32_t i, Vf x) const {
    const Df df;
    const Du du;
    const auto word = hn::Load(du, words[block / 2] + i);
    const auto shifted = hn::ShiftLeftSame(word, static_cast<int>(31 - sign_bit(block, tile)));
    return hn::Xor(x, hn::And(hn::BitCast(df, shifted), hn::SignBit(df)));
  }
};

// The indices [e, e + kN8) of a block.
template <int bits>
struct Indices {
  const std::uint8_t* bytes;
  std::uint8_t unpacked[bits == 4 ? 1 : kBlock];
  HWY_INLINE Indices(const std::uint8_t* from, std::uint32_t d) : bytes(from) {
    if constexpr (bits != 4)
      for (std::uint32_t tile = 0; tile < d; tile += dither::kTile, from += bits * dither::kTile / 8)
        for (std::uint32_t i = 0; i < dither::kTile; ++i) {
          unpacked[tile + i] = from[i % 32] >> (6 - i / 32 * 2) & 3;
          if constexpr (bits == 3) unpacked[tile + i] |= static_cast<std::uint8_t>((from[32 + i % 16] >> (7 - i / 16) & 1) << 2);
        }
  }
  HWY_INLINE V8 at(std::uint32_t e) const {
    const hn::RebindToUnsigned<D8> u8;
    if constexpr (bits == 4) {
      const auto pair = hn::LoadU(u8, bytes + e / dither::kTile * 64 + e % 64);
      return hn::BitCast(D8(), e % dither::kTile < 64 ? hn::ShiftRight<4>(pair) : hn::And(pair, hn::Set(u8, 15)));
    } else {
      return hn::BitCast(D8(), hn::LoadU(u8, unpacked + e));
    }
  }
};

}  // namespace crimp::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
