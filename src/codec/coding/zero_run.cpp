#include "codec/coding/zero_run.hpp"

#include <bit>
#include <cstring>

#include "codec/coding/set_bits.hpp"
#include "codec/threelc/threelc.hpp"

#ifndef CRIMP_ZERO_RUN_EXPANSION
#define CRIMP_ZERO_RUN_EXPANSION
namespace crimp::threelc {

// What each coded byte stands for; 4 KiB, in L1 while it is used.
struct ExpansionTable {
  std::uint8_t bytes[256][16];
  std::uint8_t length[256];
  constexpr ExpansionTable() : bytes{}, length{} {
    for (unsigned b = 0; b < 256; ++b) {
      for (auto& zero : bytes[b]) zero = kZeroByte;
      if (b < kFirstRun) bytes[b][0] = static_cast<std::uint8_t>(b);
      length[b] = static_cast<std::uint8_t>(b < kFirstRun ? 1 : b - (kFirstRun - 2));
    }
  }
};
inline constexpr ExpansionTable kExpansion;
inline constexpr std::size_t kStep = 32;
static_assert(kStep * kLongestRun + kStep <= kExpansionSlack);

}  // namespace crimp::threelc
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/coding/zero_run.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::threelc::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D8 = hn::CappedTag<std::uint8_t, 64>;

// Bit i is set where p[i] is the zero byte, for 64 bytes.
HWY_INLINE std::uint64_t zeros64(const std::uint8_t* p) {
  const D8 d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint8_t bits[16];  // StoreMaskBits may write 8 bytes
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < 64; i += lanes) {
    hn::StoreMaskBits(d, hn::Eq(hn::LoadU(d, p + i), hn::Set(d, kZeroByte)), bits);
    std::uint64_t part = 0;
    std::memcpy(&part, bits, lanes / 8);
    all |= part << i;
  }
  return all;
}

HWY_INLINE std::uint8_t* put_run(std::uint8_t* out, std::size_t run) {
  for (; run > kLongestRun; run -= kLongestRun) *out++ = 255;
  *out = run == 1 ? kZeroByte : static_cast<std::uint8_t>(kFirstRun + run - 2);
  return out + (run != 0);
}

#if HWY_TARGET > HWY_AVX3_DL
// 64 bytes with the code of the run that is left from there on in place of zero bytes that another one follows; runs
// are at most kLongestRun long. As many bytes more are read.
HWY_INLINE void code_runs(const std::uint8_t* p, std::uint8_t* word) {
  const D8 d;
  const hn::RebindToSigned<D8> ds;
  const auto zero = hn::Set(d, kZeroByte);
  for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, p + i);
    auto all = hn::VecFromMask(d, hn::Eq(v, zero)), less = all;  // less: 0 less the run's length
#pragma GCC unroll 16
    for (std::size_t k = 1; k < kLongestRun; ++k) {
      all = hn::And(all, hn::VecFromMask(d, hn::Eq(hn::LoadU(d, p + i + k), zero)));
      less = hn::Add(less, all);
    }
    const auto runs = hn::RebindMask(d, hn::Lt(hn::BitCast(ds, less), hn::Set(ds, -1)));
    hn::Store(hn::IfThenElse(runs, hn::Sub(hn::Set(d, kFirstRun - 2), less), v), d, word + i);
  }
}
// Those of eight bytes that are kept; eight are written.
HWY_INLINE std::uint8_t* put_kept(const std::uint8_t* bytes, std::uint64_t kept, std::uint8_t* out) {
  const hn::FixedTag<std::uint8_t, 8> d;
  hn::StoreU(hn::TableLookupBytes(hn::Load(d, bytes), hn::Load(d, kSetBits.places[kept])), d, out);
  return out + std::popcount(kept);
}
#endif

// Codes the bytes [from, to) of a 64-byte word whose zeros are given; none of its runs may touch `to` or be carried in.
// As many bytes as a run has may be read behind the word.
HWY_INLINE std::uint8_t* put_word(const std::uint8_t* p, std::uint64_t zeros, std::size_t from, std::size_t to,
                                  std::uint8_t* out) {
  const std::uint64_t inside =
      (to == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << to) - 1) & (~std::uint64_t{0} << from);
  zeros &= inside;
#if HWY_TARGET <= HWY_AVX3_DL
  // All runs at once: compress the places where runs begin and end, subtract, and expand the codes back to where they
  // begin.
  const std::uint64_t begins = zeros & ~(zeros << 1), ends = ~zeros & (zeros << 1);
  const __m512i place =
      _mm512_set_epi8(63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40,
                      39, 38, 37, 36, 35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                      15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i length =
      _mm512_sub_epi8(_mm512_maskz_compress_epi8(ends, place), _mm512_maskz_compress_epi8(begins, place));
  if (HWY_LIKELY(_mm512_cmpgt_epu8_mask(length, _mm512_set1_epi8(kLongestRun)) == 0)) {
    __m512i code = _mm512_add_epi8(length, _mm512_set1_epi8(static_cast<char>(kFirstRun - 2)));
    code = _mm512_mask_mov_epi8(code, _mm512_cmpeq_epi8_mask(length, _mm512_set1_epi8(1)), _mm512_set1_epi8(kZeroByte));
    const __m512i word = _mm512_mask_expand_epi8(_mm512_loadu_si512(p), begins, code);
    const std::uint64_t kept = (inside & ~zeros) | begins;
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, word));
    return out + std::popcount(kept);
  }
#else
  const std::uint64_t pairs = zeros & zeros >> 1, fours = pairs & pairs >> 2, eights = fours & fours >> 4;
  if (HWY_LIKELY((eights & eights >> 7) == 0)) {  // no run of fifteen
    alignas(64) std::uint8_t word[64];
    code_runs(p, word);
    const std::uint64_t kept = (inside & ~zeros) | (zeros & ~(zeros << 1));
    for (std::size_t i = 0; i < 64; i += 8) out = put_kept(word + i, kept >> i & 255, out);
    return out;
  }
#endif
  for (std::size_t i = from; i < to;) {
    const std::uint64_t rest = zeros >> i;
    if (rest & 1) {
      const auto run = static_cast<std::size_t>(std::countr_one(rest));
      out = put_run(out, run);
      i += run;
    } else {
      std::size_t literals = rest ? static_cast<std::size_t>(std::countr_zero(rest)) : 64;
      if (literals > to - i) literals = to - i;
      std::memcpy(out, p + i, 64 - i < 16 ? literals : literals <= 16 ? 16 : literals);
      out += literals;
      i += literals;
    }
  }
  return out;
}

std::size_t ZeroRunEncode(const std::uint8_t* base, std::size_t n, std::uint8_t* out) {
  const std::uint8_t* const begin = out;
  std::size_t run = 0;  // zero bytes seen and not yet coded
  alignas(64) std::uint8_t last[64 + kLongestRun];
  for (std::size_t at = 0; at < n; at += 64) {
    const std::uint8_t* p = base + at;
    const std::size_t to = n - at < 64 ? n - at : 64;
    if (n - at < sizeof last) {
      std::memset(last, 0, sizeof last);
      std::memcpy(last, p, n - at);
      p = last;
    }
    const std::uint64_t zeros = zeros64(p);
    const auto from = static_cast<std::size_t>(std::countr_one(zeros));
    run += from;
    if (from >= to) continue;
    out = put_run(out, run);
    run = static_cast<std::size_t>(std::countl_one(zeros << (64 - to)));
    out = put_word(p, zeros, from, to - run, out);
  }
  return static_cast<std::size_t>(put_run(out, run) - begin);
}

#if HWY_TARGET <= HWY_AVX3_DL
// Restores what 64 coded bytes stand for, or returns 0 where that is long and the byte-wise way is as good.
// Prefix sums of the lengths give every literal its place; the places become one bit mask per 64 bytes, and an
// expansion fills them.
HWY_INLINE std::size_t expand_word(const std::uint8_t* in, std::uint8_t* base) {
  const __m512i v = _mm512_loadu_si512(in);
  const std::uint64_t runs = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(static_cast<char>(kFirstRun)));
  if (runs == 0) {
    _mm512_storeu_si512(base, v);
    return 64;
  }
  const __m512i length =
      _mm512_mask_sub_epi8(_mm512_set1_epi8(1), runs, v, _mm512_set1_epi8(static_cast<char>(kFirstRun - 2)));
  // Sums within eight bytes are at most 112, so a multiplication makes all of them.
  const __m512i sums = _mm512_mullo_epi64(length, _mm512_set1_epi64(0x0101010101010101));
  alignas(64) std::uint8_t before[64];
  _mm512_store_si512(before, _mm512_slli_epi64(sums, 8));
  alignas(64) std::uint64_t totals[8];
  _mm512_store_si512(totals, _mm512_srli_epi64(sums, 56));
  __m512i place[8];
  std::uint64_t end = 0;
  for (int i = 0; i < 8; ++i) {
    place[i] = _mm512_add_epi64(_mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(before + 8 * i))),
                                _mm512_set1_epi64(static_cast<long long>(end)));
    end += totals[i];
  }
  if (end > 320) return 0;
  const __m512i one = _mm512_set1_epi64(1), zero_byte = _mm512_set1_epi8(kZeroByte);
  alignas(64) std::uint8_t literals[128];
  _mm512_store_si512(literals, _mm512_maskz_compress_epi8(~runs, v));
  std::size_t taken = 0;
  for (std::uint64_t at = 0; at < end; at += 64) {
    __m512i bits = _mm512_setzero_si512();
    for (int i = 0; i < 8; ++i) {
      bits = _mm512_or_si512(bits, _mm512_maskz_sllv_epi64(static_cast<__mmask8>(~runs >> (8 * i)), one, place[i]));
      place[i] = _mm512_sub_epi64(place[i], _mm512_set1_epi64(64));  // places outside the word shift the bit out
    }
    const auto mask = static_cast<std::uint64_t>(_mm512_reduce_or_epi64(bits));
    _mm512_storeu_si512(base + at, _mm512_mask_expand_epi8(zero_byte, mask, _mm512_loadu_si512(literals + taken)));
    taken += static_cast<std::size_t>(std::popcount(mask));
  }
  return end;
}
#else
constexpr int kFewRuns = 6;  // beyond them each byte has a store of its own

// Restores what kStep coded bytes stand for and returns the end. Behind `base` are zero bytes, as many as may follow,
// and there are again behind the end; as many coded bytes again may be read.
HWY_INLINE std::uint8_t* expand_step(const std::uint8_t* in, std::uint8_t* base) {
  const hn::CappedTag<std::uint8_t, kStep> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Set(d, kZeroByte), first = hn::Set(d, kFirstRun);
  std::uint32_t runs = 0;
  for (std::size_t i = 0; i < kStep; i += lanes) {
    const auto v = hn::LoadU(d, in + i);
    std::uint8_t bits[8];
    hn::StoreMaskBits(d, hn::Eq(hn::Max(v, first), v), bits);
    std::uint32_t part = 0;
    std::memcpy(&part, bits, lanes / 8);
    runs |= part << i;
  }
  if (std::popcount(runs) <= kFewRuns) {
    std::size_t from = 0;
    for (; runs; runs &= runs - 1) {
      const auto run = static_cast<std::size_t>(std::countr_zero(runs));
      std::memcpy(base, in + from, kStep);
      base += run - from;
      std::memset(base, kZeroByte, 16);
      base += in[run] - (kFirstRun - 2u);
      from = run + 1;
    }
    std::memcpy(base, in + from, kStep);
    base += kStep - from;
    std::memset(base, kZeroByte, kStep);
    return base;
  }
  alignas(kStep) std::uint8_t head[kStep], behind[kStep];  // behind: where a byte's run ends, from its eight on
  for (std::size_t i = 0; i < kStep; i += lanes) {
    const auto v = hn::LoadU(d, in + i);
    hn::Store(hn::IfThenElse(hn::Eq(hn::Max(v, first), v), zero, v), d, head + i);
    auto length = hn::BitCast(d64, hn::Max(hn::SaturatedSub(v, hn::Set(d, kFirstRun - 2)), hn::Set(d, 1)));
    length = hn::Add(length, hn::ShiftLeft<8>(length));  // sums of eight are at most 112: nothing is carried
    length = hn::Add(length, hn::ShiftLeft<16>(length));
    length = hn::Add(length, hn::ShiftLeft<32>(length));
    hn::Store(hn::BitCast(d, length), d, behind + i);
  }
  for (std::size_t i = 0; i < kStep; i += 8) {
    base[0] = head[i];
#pragma GCC unroll 8
    for (std::size_t k = 1; k < 8; ++k) base[behind[i + k - 1]] = head[i + k];
    base += behind[i + 7];
  }
  return base;
}
#endif

bool ZeroRunDecode(const std::uint8_t* in, std::size_t bytes, std::uint8_t* base, std::size_t n) {
  // Without a branch per byte: the byte goes out as the head of sixteen zero bytes, and the next one starts where its
  // run ends. Where it got to is checked once in kStep bytes, which cannot write more than kExpansionSlack too much.
  std::size_t to = 0, at = 0;
#if HWY_TARGET > HWY_AVX3_DL
  std::memset(base, kZeroByte, n);
#endif
  for (; at + kStep <= bytes; at += kStep) {
#if HWY_TARGET <= HWY_AVX3_DL
    if (at + 64 <= bytes) {
      const std::size_t expanded = expand_word(in + at, base + to);
      if (expanded) {
        to += expanded;
        if (to > n) return false;
        at += 64 - kStep;
        continue;
      }
    }
#else
    if (at + 2 * kStep <= bytes) {
      to = static_cast<std::size_t>(expand_step(in + at, base + to) - base);
      if (to > n) return false;
      continue;
    }
#endif
    for (std::size_t i = 0; i < kStep; ++i) {
      std::memcpy(base + to, kExpansion.bytes[in[at + i]], 16);
      to += kExpansion.length[in[at + i]];
    }
    if (to > n) return false;
  }
  for (; at < bytes; ++at) {
    std::memcpy(base + to, kExpansion.bytes[in[at]], 16);
    to += kExpansion.length[in[at]];
    if (to > n) return false;
  }
  return to == n;
}

}  // namespace crimp::threelc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::threelc {
HWY_EXPORT(ZeroRunEncode);
HWY_EXPORT(ZeroRunDecode);
std::size_t zero_run_encode(const std::uint8_t* base, std::size_t n, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(ZeroRunEncode)(base, n, out);
}
bool zero_run_decode(const std::uint8_t* in, std::size_t bytes, std::uint8_t* base, std::size_t n) {
  return HWY_DYNAMIC_DISPATCH(ZeroRunDecode)(in, bytes, base, n);
}
}  // namespace crimp::threelc
#endif
