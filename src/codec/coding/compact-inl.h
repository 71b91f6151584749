// Lanes that a mask selects, one behind another, and from there back to their places. Included once per SIMD target.
#if defined(CRIMP_COMPACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_COMPACT_INL_H_
#undef CRIMP_COMPACT_INL_H_
#else
#define CRIMP_COMPACT_INL_H_
#endif
#include <hwy/highway.h>

#include <bit>
#include <cstdint>

#include "codec/coding/set_bits.hpp"

HWY_BEFORE_NAMESPACE();
namespace crimp::compact::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Vf = hn::Vec<Df>;
using Mf = hn::Mask<Df>;

// Bit i: lane i.
HWY_INLINE std::uint64_t bits_of(Mf mask) {
#if HWY_TARGET <= HWY_AVX3
  return static_cast<std::uint64_t>(mask.raw);
#elif HWY_TARGET == HWY_AVX2
  return static_cast<unsigned>(_mm256_movemask_ps(hn::VecFromMask(Df(), mask).raw));
#else
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(Df(), mask, bits);
  return bits[0] | static_cast<std::uint64_t>(hn::MaxLanes(Df()) > 8 ? bits[1] : 0) << 8;
#endif
}

// The lanes of `mask` first, then any.
HWY_INLINE Vf selected_first(Vf v, Mf mask) {
#if HWY_TARGET == HWY_AVX2
  const __m128i places = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSetBits.places[bits_of(mask)]));
  return Vf{_mm256_permutevar8x32_ps(v.raw, _mm256_cvtepu8_epi32(places))};
#else
  return hn::Compress(v, mask);
#endif
}
// Stores the lanes of `mask` one behind another, and what is left of a vector behind them; returns how many. (AVX-512's
// own compressing store is microcode on AMD.)
HWY_INLINE std::size_t store_selected(Vf v, Mf mask, float* to) {
  hn::StoreU(selected_first(v, mask), Df(), to);
  return static_cast<std::size_t>(std::popcount(bits_of(mask)));
}

// The first lanes of v in the places of `mask`; what lies in other places means nothing.
HWY_INLINE Vf placed(Vf v, Mf mask) {
#if HWY_TARGET <= HWY_AVX3
  return Vf{_mm512_maskz_expand_ps(mask.raw, v.raw)};
#elif HWY_TARGET == HWY_AVX2
  const __m128i ranks = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSetBits.ranks[bits_of(mask)]));
  return Vf{_mm256_permutevar8x32_ps(v.raw, _mm256_cvtepu8_epi32(ranks))};
#else
  const hn::RebindToSigned<Df> di;
  const auto ranks = hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::uint8_t, Df>(), kSetBits.ranks[bits_of(mask)]));
  return hn::TableLookupLanes(v, hn::IndicesFromVec(Df(), ranks));
#endif
}

}  // namespace crimp::compact::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
