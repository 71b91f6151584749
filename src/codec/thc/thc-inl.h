// THC's rotations: Walsh-Hadamard transforms of floats, the signs D, and the way back from indices. Those are small
// integers, so it runs on bytes, then on 16-bit lanes, and is exact in any order. Included by files that Highway
// compiles once per target.
#include <hwy/highway.h>

#include "codec/coding/dither-inl.h"
#include "codec/thc/thc.hpp"

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
#if HWY_TARGET <= HWY_AVX3
  // The product is exact: the same difference, by a multiplier, so that not all wait for the adders.
  if constexpr (std::is_same_v<V, Vf>) {
    b = hn::NegMulAdd(b, hn::Set(Df(), 1.0f), a);
  } else
#endif
    b = hn::Sub(a, b);
  a = sum;
}
// All strides of n elements, or of n vectors of elements.
template <std::uint32_t n, class V>
HWY_INLINE void pair_butterflies(V* v) {
#pragma GCC unroll 4
  for (std::uint32_t stride = 1; stride < n; stride *= 2)
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < n / 2; ++i) {
      const std::uint32_t j = i / stride * 2 * stride + i % stride;
      butterfly(v[j], v[j + stride]);
    }
}
// All strides of the concatenation of n vectors. Those below kN are a vector's own: its lanes plus or minus the ones a
// stride away. The product with 1 or -1 is exact, so that nothing is rounded but the sum; and multipliers are other
// units than the adders, which all other strides need.
template <std::uint32_t n>
HWY_INLINE void short_strides(Vf* v) {
  const Df df;
  const auto lanes = [&](std::uint32_t stride, auto&& swap) CRIMP_STEP {
    const auto negative =
        hn::Ne(hn::And(hn::Iota(Di(), 0), hn::Set(Di(), static_cast<std::int32_t>(stride))), hn::Zero(Di()));
    const Vf sign = hn::IfThenElse(hn::RebindMask(df, negative), hn::Set(df, -1.0f), hn::Set(df, 1.0f));
#pragma GCC unroll 16
    for (std::uint32_t j = 0; j < n; ++j) v[j] = hn::MulAdd(v[j], sign, swap(v[j]));
  };
  if constexpr (kN > 1) lanes(1, [](Vf x) CRIMP_STEP { return hn::Shuffle2301(x); });
  if constexpr (kN > 2) lanes(2, [](Vf x) CRIMP_STEP { return hn::Shuffle1032(x); });
  if constexpr (kN > 8) lanes(4, [](Vf x) CRIMP_STEP { return hn::SwapAdjacentBlocks(x); });
  if constexpr (kN > 4) lanes(kN / 2, [&](Vf x) CRIMP_STEP { return hn::ConcatLowerUpper(df, x, x); });
  pair_butterflies<n>(v);
}

// The strides from `stride` below radix * stride of d elements, in place.
template <std::uint32_t radix>
HWY_INLINE void long_stride(std::uint32_t d, std::uint32_t stride, float* y) {
  for (std::uint32_t group = 0; group < d; group += radix * stride)
    for (std::uint32_t i = group; i < group + stride; i += kN) {
      Vf v[radix];
#pragma GCC unroll 8
      for (std::uint32_t j = 0; j < radix; ++j) v[j] = hn::Load(Df(), y + i + j * stride);
      pair_butterflies<radix>(v);
#pragma GCC unroll 8
      for (std::uint32_t j = 0; j < radix; ++j) hn::Store(v[j], Df(), y + i + j * stride);
    }
}
// All strides from `stride` up to d / 2, ascending. Whole blocks by constants: GCC else keeps its pointers in vector
// registers.
template <std::uint32_t stride>
HWY_INLINE void long_strides(std::uint32_t d, float* y) {
  if (d < kBlock) {
    for (std::uint32_t s = stride; s < d; s *= 2) long_stride<2>(d, s, y);
  } else if constexpr (stride < kBlock) {
    constexpr std::uint32_t radix = kBlock / stride < 8 ? kBlock / stride : 8;
    long_stride<radix>(kBlock, stride, y);
    long_strides<radix * stride>(kBlock, y);
  }
}

template <std::uint32_t n, class Load>
HWY_INLINE void walsh_hadamard(std::uint32_t d, Load&& load, float* y) {
  for (std::uint32_t group = 0; group < d; group += n * kN) {
    Vf v[n];
#pragma GCC unroll 16
    for (std::uint32_t j = 0; j < n; ++j) {
      const std::uint32_t e = group + j * kN, i = e % dither::kTile;
      v[j] = load(e - i, i);
    }
    short_strides<n>(v);
#pragma GCC unroll 16
    for (std::uint32_t j = 0; j < n; ++j) hn::Store(v[j], Df(), y + group + j * kN);
  }
  long_strides<n * kN>(d, y);
}

// y = H x for d elements, where load(tile, i) gives x[tile + i, tile + i + kN), i < dither::kTile.
template <class Load>
HWY_INLINE void walsh_hadamard(std::uint32_t d, Load&& load, float* y) {
  // As many chains of butterflies side by side as there are registers for.
  if constexpr (16 * kN == 2 * dither::kTile)
    if (d > dither::kTile) return walsh_hadamard<16>(d, load, y);
  walsh_hadamard<8>(d, load, y);
}

// The signs D of a piece's blocks, two blocks a row.
struct Signs {
  alignas(64) std::uint32_t words[(kBlocks + 1) / 2][dither::kTile];
  HWY_INLINE Signs(const RandomCounter& counter, std::uint32_t blocks) {
    for (std::uint32_t row = 0; row < (blocks + 1) / 2; ++row)
      for_tile({counter.element, counter.step, 0}, dither::kShared, row,
               [&](std::size_t half, std::size_t lane, V32 bits)
                   CRIMP_STEP { hn::Store(bits, Du(), words[row] + half * dither::kLanes + lane); });
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
      for (std::uint32_t tile = 0; tile < d; tile += dither::kTile, from += bits * dither::kTile / 8) {
        std::uint8_t* const to = unpacked + tile;
        const hn::CappedTag<std::uint8_t, 32> u8;
        for (std::uint32_t i = 0; i < 32; i += static_cast<std::uint32_t>(hn::Lanes(u8))) {
          const auto four = hn::LoadU(u8, from + i), lowest = hn::Set(u8, 3);
          hn::StoreU(hn::ShiftRight<6>(four), u8, to + i);
          hn::StoreU(hn::And(hn::ShiftRight<4>(four), lowest), u8, to + 32 + i);
          hn::StoreU(hn::And(hn::ShiftRight<2>(four), lowest), u8, to + 64 + i);
          hn::StoreU(hn::And(four, lowest), u8, to + 96 + i);
        }
        if constexpr (bits == 3) {
          const hn::CappedTag<std::uint8_t, 16> d16;
          for (std::uint32_t i = 0; i < 16; i += static_cast<std::uint32_t>(hn::Lanes(d16))) {
            const auto thirds = hn::LoadU(d16, from + 32 + i);
            for (std::uint32_t g = 0; g < 8; ++g) {
              const auto bit = hn::And(thirds, hn::Set(d16, static_cast<std::uint8_t>(0x80 >> g)));
              const auto four = hn::AndNot(hn::VecFromMask(d16, hn::Eq(bit, hn::Zero(d16))), hn::Set(d16, 4));
              std::uint8_t* const at = to + 16 * g + i;
              hn::StoreU(hn::Or(hn::LoadU(d16, at), four), d16, at);
            }
          }
        }
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

// use(tile, i, h) for all elements tile + i of a block, i < dither::kTile, h = H centred[indices] as floats.
template <int bits, class Dimension, class Use>
HWY_INLINE void unrotate_block(const Tables& t, Dimension d, const std::uint8_t* bytes, Use&& use) {
  const D8 d8;
  const D16 d16;
  const Indices<bits> indices(bytes, d);
  const V8 table = hn::LoadDup128(d8, t.centred);
  alignas(64) std::int16_t h[kBlock];
  // Within 16 bytes pairs are elements 8 apart.
  alignas(16) static constexpr std::int8_t kPairs[16] = {0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15};
  const V8 pairs = hn::LoadDup128(d8, kPairs);
  const auto value = [&](V8 values, std::uint32_t e) CRIMP_STEP {
    return hn::TableLookupBytes(values, hn::TableLookupBytes(indices.at(e), pairs));
  };
  // Strides below kN8 of n vectors 64 elements apart, which have been summed over up to four values in bytes. Side by
  // side, stride by stride: each waits for the one before.
  const auto spread = [&](std::uint32_t e, const V8* v, auto vectors) CRIMP_STEP {
    constexpr std::uint32_t n = vectors;  // a loop to an object's value would not be unrolled
    V16 a[n], b[n];
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < n; ++j) {
#if HWY_TARGET <= HWY_AVX3
      // One of the four had 128 added, to be unsigned.
      a[j] = hn::Sub(V16{_mm512_maddubs_epi16(v[j].raw, _mm512_set1_epi8(1))}, hn::Set(d16, 256));
      b[j] = V16{_mm512_maddubs_epi16(v[j].raw, _mm512_set1_epi16(-255))};  // 1, -1
#else
      const V16 w = hn::BitCast(d16, v[j]);
      a[j] = hn::ShiftRight<8>(hn::ShiftLeft<8>(w));
      b[j] = hn::ShiftRight<8>(w);
      butterfly(a[j], b[j]);
#endif
    }
    // The address bit between a and b becomes one of the lanes', and the highest of their 16 bytes comes between them;
    // a fourth time, and all are in order.
    const auto step = [&](bool sum, auto&& low, auto&& high) CRIMP_STEP {
#pragma GCC unroll 4
      for (std::uint32_t j = 0; j < n; ++j) {
        const V16 lower = low(a[j], b[j]), upper = high(a[j], b[j]);
        a[j] = lower, b[j] = upper;
        if (sum) butterfly(a[j], b[j]);
      }
    };
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      step(
          i < 3, [&](V16 x, V16 y) CRIMP_STEP { return hn::InterleaveLower(d16, x, y); },
          [&](V16 x, V16 y) CRIMP_STEP { return hn::InterleaveUpper(d16, x, y); });
#if HWY_TARGET <= HWY_AVX3
    for (int i = 0; i < 2; ++i)
      step(
          true, [&](V16 x, V16 y) CRIMP_STEP { return V16{_mm512_shuffle_i32x4(x.raw, y.raw, 0x88)}; },
          [&](V16 x, V16 y) CRIMP_STEP { return V16{_mm512_shuffle_i32x4(x.raw, y.raw, 0xdd)}; });
#else
    if constexpr (kN8 == 32)
      step(
          true, [&](V16 x, V16 y) CRIMP_STEP { return hn::ConcatLowerLower(d16, y, x); },
          [&](V16 x, V16 y) CRIMP_STEP { return hn::ConcatUpperUpper(d16, y, x); });
#endif
#pragma GCC unroll 4
    for (std::uint32_t j = 0; j < n; ++j) {
      hn::Store(a[j], d16, h + e + 64 * j);
      hn::Store(b[j], d16, h + e + 64 * j + kN16);
    }
  };
  const V8 first = HWY_TARGET <= HWY_AVX3 ? hn::Xor(table, hn::Set(d8, -128)) : table;
  for (std::uint32_t e = 0; e < d; e += 256)
    for (std::uint32_t j = e; j < e + 64; j += kN8) {
      V8 v[4] = {value(first, j), value(table, j + 64)};
      butterfly(v[0], v[1]);
      if (d == kLeastBlock) {
        spread(j, v, std::integral_constant<std::uint32_t, 2>());
        continue;
      }
      v[2] = value(table, j + 128);
      v[3] = value(table, j + 192);
      butterfly(v[2], v[3]);
      butterfly(v[0], v[2]);
      butterfly(v[1], v[3]);
      spread(j, v, std::integral_constant<std::uint32_t, 4>());
    }
  for (std::uint32_t stride = kN8; stride < 64; stride *= 2)
    for (std::uint32_t group = 0; group < d; group += 2 * stride)
      for (std::uint32_t e = group; e < group + stride; e += kN16) {
        V16 a = hn::Load(d16, h + e), b = hn::Load(d16, h + e + stride);
        butterfly(a, b);
        hn::Store(a, d16, h + e);
        hn::Store(b, d16, h + e + stride);
      }
  const auto give = [&](std::uint32_t tile, std::uint32_t i, V16 v) CRIMP_STEP {
    const hn::Half<D16> half;
    use(tile, i, hn::ConvertTo(Df(), hn::PromoteTo(Di(), hn::LowerHalf(half, v))));
    use(tile, i + kN, hn::ConvertTo(Df(), hn::PromoteTo(Di(), hn::UpperHalf(half, v))));
  };
  for (std::uint32_t tile = 0; tile < d && tile < 256; tile += dither::kTile)
    for (std::uint32_t i = 0; i < dither::kTile; i += kN16) {
      V16 v0 = hn::Load(d16, h + tile + i);
      if (d > 256) {
        V16 v1 = hn::Load(d16, h + tile + i + 256);
        butterfly(v0, v1);
        if (d > 512) {
          V16 v2 = hn::Load(d16, h + tile + i + 512), v3 = hn::Load(d16, h + tile + i + 768);
          butterfly(v2, v3);
          butterfly(v0, v2);
          butterfly(v1, v3);
          give(tile + 512, i, v2);
          give(tile + 768, i, v3);
        }
        give(tile + 256, i, v1);
      }
      give(tile, i, v0);
    }
}

}  // namespace crimp::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
