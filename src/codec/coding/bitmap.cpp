#include "codec/coding/bitmap.hpp"

#include <bit>
#include <cstring>

#include "codec/coding/set_bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/coding/bitmap.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::bitmap::HWY_NAMESPACE {

// With the processor's own instruction, where a target has it.
std::uint32_t Count(const std::uint8_t* bits, std::size_t bytes) {
  std::uint32_t set = 0;
  std::size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bits + at, sizeof word);
    set += static_cast<std::uint32_t>(std::popcount(word));
  }
  for (; at < bytes; ++at) set += static_cast<std::uint32_t>(std::popcount(bits[at]));
  return set;
}

void Add(const std::uint8_t* bits, std::uint64_t n, const float* values, float* acc) {
  std::uint64_t i = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; i + 16 <= n; i += 16) {
    __mmask16 here;
    std::memcpy(&here, bits + i / 8, sizeof here);
    const __m512 a = _mm512_loadu_ps(acc + i);
    _mm512_storeu_ps(acc + i, _mm512_mask_add_ps(a, here, a, _mm512_maskz_expand_ps(here, _mm512_loadu_ps(values))));
    values += std::popcount(here);
  }
#elif HWY_TARGET == HWY_AVX2
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  for (; i + 8 <= n; i += 8) {
    const std::uint8_t here = bits[i / 8];
    const __m128i ranks = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kSetBits.ranks[here]));
    const __m256 next = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), _mm256_cvtepu8_epi32(ranks));
    const __m256 selected =
        _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(here), each), each));
    const __m256 a = _mm256_loadu_ps(acc + i);
    _mm256_storeu_ps(acc + i, _mm256_blendv_ps(a, _mm256_add_ps(a, next), selected));
    values += std::popcount(here);
  }
#endif
  for (; i < n; ++i)
    if (bits[i / 8] >> i % 8 & 1) acc[i] += *values++;
}

}  // namespace crimp::bitmap::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::bitmap {
HWY_EXPORT(Count);
HWY_EXPORT(Add);

std::uint32_t count(const std::uint8_t* bits, std::size_t bytes) { return HWY_DYNAMIC_DISPATCH(Count)(bits, bytes); }

void add(const std::uint8_t* bits, std::uint64_t n, const float* values, float* acc) {
  HWY_DYNAMIC_DISPATCH(Add)(bits, n, values, acc);
}

}  // namespace crimp::bitmap
#endif
