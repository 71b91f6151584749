// From THC's rotated values to packed indices. Included by files that Highway compiles once per target.
#include <hwy/highway.h>

#include <array>

#include "codec/thc/thc-inl.h"

#if defined(CRIMP_THC_QUANTIZER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_THC_QUANTIZER_INL_H
#undef CRIMP_THC_QUANTIZER_INL_H
#else
#define CRIMP_THC_QUANTIZER_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::thc::HWY_NAMESPACE {

// Indices of rotated values: kOne times them, and what is below it. wide: granularity 32 and more.
template <bool wide>
class Quantizer {
 public:
  HWY_INLINE Quantizer(const Tables& t, float norm)
      : scale_(hn::Set(Df(), t.to_grid / norm)), top_(hn::Set(Df(), static_cast<float>(t.granularity))),
        middle_(hn::Set(Df(), 0.5f * static_cast<float>(t.granularity))) {
#if HWY_TARGET <= HWY_AVX3
    for (int i = 0; i < kRegisters; ++i)
      slope_[i] = _mm512_load_ps(t.slope + 16 * i), offset_[i] = _mm512_load_ps(t.offset + 16 * i);
#elif HWY_TARGET == HWY_AVX2
    for (int i = 0; i < kChunks; ++i)
      level_[i] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(t.level) + i));
    for (int i = 0; i < 2; ++i)
      slope_[i] = _mm256_load_ps(t.level_slope + kN * i), offset_[i] = _mm256_load_ps(t.level_offset + kN * i);
#else
    slope_ = t.slope, offset_ = t.offset;
#endif
  }
  // Of eight vectors of a tile, dither::kLanes apart. Step by step for all of them: one after another would wait for
  // its own results.
  HWY_INLINE void operator()(const float* y, const V32* random, hn::Vec<Di>* fixed) const {
    const Df df;
    const Di di;
    Vf u[8];
    for (std::uint32_t i = 0; i < 8; ++i) {
      const auto x = hn::Mul(hn::Load(df, y + i * dither::kLanes), scale_);
#if HWY_TARGET <= HWY_AVX3
      u[i] = hn::Add(Vf{_mm512_range_ps(x.raw, middle_.raw, 2)}, middle_);  // the lesser magnitude, with the sign of x
#else
      // Cut as integers, which have the floats' order and more units.
      u[i] =
          hn::BitCast(df, hn::Min(hn::Max(hn::BitCast(di, hn::Add(x, middle_)), hn::Zero(di)), hn::BitCast(di, top_)));
#endif
    }
    for (std::uint32_t i = 0; i < 8; ++i) {
#if HWY_TARGET <= HWY_AVX3
      const __m512i k = _mm512_cvttps_epi32(u[i].raw);
      const auto entry = [&](const __m512* table) CRIMP_STEP {
        const __m512 low = _mm512_permutex2var_ps(table[0], k, table[1]);
        if constexpr (!wide) return low;
        return _mm512_mask_blend_ps(_mm512_test_epi32_mask(k, _mm512_set1_epi32(32)), low,
                                    _mm512_permutex2var_ps(table[kRegisters - 2], k, table[kRegisters - 1]));
      };
      fixed[i] =
          hn::Vec<Di>{_mm512_cvttps_epi32(_mm512_add_ps(_mm512_mul_ps(entry(slope_), u[i].raw), entry(offset_)))};
#else
      const auto k = whole(u[i]);
#if HWY_TARGET == HWY_AVX2
      const __m256i i_of_k = level(k.raw);
      const __m256 high = _mm256_castsi256_ps(_mm256_cmpgt_epi32(i_of_k, _mm256_set1_epi32(7)));
      const auto entry = [&](const __m256* table) CRIMP_STEP {
        return Vf{_mm256_blendv_ps(_mm256_permutevar8x32_ps(table[0], i_of_k),
                                   _mm256_permutevar8x32_ps(table[1], i_of_k), high)};
      };
      fixed[i] = whole(hn::Add(hn::Mul(entry(slope_), u[i]), entry(offset_)));
#else
      fixed[i] = whole(hn::Add(hn::Mul(hn::GatherIndex(df, slope_, k), u[i]), hn::GatherIndex(df, offset_, k)));
#endif
#endif
    }
    for (std::uint32_t i = 0; i < 8; ++i) fixed[i] = hn::Add(fixed[i], hn::BitCast(di, random[i]));
  }

 private:
  Vf scale_, top_, middle_;
#if HWY_TARGET <= HWY_AVX3
  static constexpr int kRegisters = wide ? 4 : 2;
  __m512 slope_[kRegisters], offset_[kRegisters];
#elif HWY_TARGET == HWY_AVX2
  static constexpr int kChunks = wide ? 4 : 2;
  __m256i level_[kChunks];
  __m256 slope_[2], offset_[2];
#else
  const float *slope_, *offset_;
#endif
#if HWY_TARGET > HWY_AVX3
  // x cut to an integer; it is below 2^31.
  HWY_INLINE static hn::Vec<Di> whole(Vf x) {
#if HWY_TARGET == HWY_AVX2
    return hn::Vec<Di>{_mm256_cvttps_epi32(x.raw)};  // no correction of what overflows
#else
    return hn::ConvertTo(Di(), x);
#endif
  }
#endif
#if HWY_TARGET == HWY_AVX2
  // The level that k belongs to: bytes looked up 16 at a time, where all others come out as 0 because their byte's sign
  // is set. A gather takes several times as long, and four registers of floats twice.
  HWY_INLINE __m256i level(__m256i k) const {
    const auto among = [&](int chunk, __m256i at) CRIMP_STEP { return _mm256_shuffle_epi8(level_[chunk], at); };
    const __m256i within = _mm256_set1_epi32(static_cast<int>(0x80808070u));
    const __m256i first = among(0, _mm256_add_epi32(k, within));
    if constexpr (!wide)  // k < 32
      return _mm256_or_si256(first, among(1, _mm256_add_epi32(k, _mm256_set1_epi32(static_cast<int>(0xc0c0c0f0u)))));
    __m256i found = first;
    for (int chunk = 1; chunk < kChunks; ++chunk)
      found = _mm256_or_si256(
          found, among(chunk, _mm256_add_epi32(_mm256_xor_si256(k, _mm256_set1_epi32(16 * chunk)), within)));
    return found;
  }
#endif
};

HWY_INLINE void store_bytes(hn::Vec<Di> v, std::uint8_t* to) {
#if HWY_TARGET <= HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(v.raw));
#else
  const hn::Rebind<std::uint8_t, Di> d8;
  hn::StoreU(hn::DemoteTo(d8, v), d8, to);
#endif
}

// What a quantizer gives as the indices of kN lanes of a tile, packed: WIRE_FORMAT.md, 4.23.
template <int bits>
HWY_INLINE void pack_indices(const hn::Vec<Di>* fixed, std::uint8_t* bytes) {
  const Di di;
  if constexpr (bits == 4) {
    hn::Vec<Di> pair[4];
    for (std::uint32_t i = 0; i < 4; ++i)
      pair[i] = hn::OrAnd(hn::ShiftRight<16>(fixed[i + 4]), hn::ShiftRight<12>(fixed[i]), hn::Set(di, 0xf0));
#if HWY_TARGET <= HWY_AVX3_DL
    // Indices are third bytes, of pairs side by side; one store a tile: the residual's decoding loads these bytes as a
    // vector while they are still being stored.
    for (std::uint32_t i = 0; i < 4; ++i)
      pair[i] = hn::Vec<Di>{_mm512_ternarylogic_epi32(hn::ShiftLeft<4>(fixed[i]).raw, fixed[i + 4].raw,
                                                      _mm512_set1_epi32(0xf00000), 0xe4)};
    alignas(64) static constexpr auto kThird = [] {
      std::array<std::uint8_t, 64> bytes{};
      for (unsigned i = 0; i < 64; ++i) bytes[i] = static_cast<std::uint8_t>(i % 32 * 4 + 2);
      return bytes;
    }();
    const __m512i third = _mm512_load_si512(kThird.data());
    const __m512i low = _mm512_permutex2var_epi8(pair[0].raw, third, pair[1].raw),
                  high = _mm512_permutex2var_epi8(pair[2].raw, third, pair[3].raw);
    _mm512_storeu_si512(bytes, _mm512_mask_blend_epi64(0xf0, low, high));
#elif HWY_TARGET <= HWY_AVX3
    // One store a tile: the residual's decoding loads these bytes as a vector while they are still being stored.
    __m512i all = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(pair[0].raw));
    all = _mm512_inserti32x4(all, _mm512_cvtepi32_epi8(pair[1].raw), 1);
    all = _mm512_inserti32x4(all, _mm512_cvtepi32_epi8(pair[2].raw), 2);
    all = _mm512_inserti32x4(all, _mm512_cvtepi32_epi8(pair[3].raw), 3);
    _mm512_storeu_si512(bytes, all);
#else
    for (std::uint32_t i = 0; i < 4; ++i) store_bytes(pair[i], bytes + i * dither::kLanes);
#endif
  } else {
    hn::Vec<Di> held[2] = {hn::Zero(di), hn::Zero(di)}, third = hn::Zero(di);
    for (std::uint32_t i = 0; i < 8; ++i) {
      const auto index = hn::ShiftRight<16>(fixed[i]);
      held[i % 2] =
          hn::Or(held[i % 2], hn::ShiftLeftSame(hn::And(index, hn::Set(di, 3)), static_cast<int>(6 - i / 2 * 2)));
      third = hn::Or(third, hn::ShiftLeftSame(hn::ShiftRight<2>(index), static_cast<int>(7 - i)));
    }
    store_bytes(held[0], bytes);
    store_bytes(held[1], bytes + dither::kLanes);
    if constexpr (bits == 3) store_bytes(third, bytes + 2 * dither::kLanes);
  }
}

}  // namespace crimp::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
