// 3LC on the host. One pass finds the scale of a piece, a second one, from L1, quantises, updates the residual and
// packs: 32-bit lanes hold one base-3^5 byte each, built from five stripes of the tile, so that nothing is shuffled and
// one narrowing store ends 5 x lanes elements.
#include <cmath>
#include <cstring>

#include "codec/coding/largest.hpp"
#include "codec/coding/prefetch.hpp"
#include "codec/coding/prefix_code.hpp"
#include "codec/coding/zero_run.hpp"
#include "codec/registry.hpp"
#include "codec/threelc/threelc.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/threelc/threelc_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::threelc::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
// At most 16 lanes: a stripe is 32 bytes and its tail may be cut anywhere.
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using D8 = hn::Rebind<std::uint8_t, Df>;
using D8s = hn::CappedTag<std::uint8_t, kStripe>;

template <bool has_in, bool has_out>
HWY_INLINE void encode_tiles(const float* HWY_RESTRICT values, const float* in, float* out, std::uint64_t count,
                             float scale, std::uint8_t* HWY_RESTRICT bytes) {
  const Df d;
  const Di di;
  const std::size_t lanes = hn::Lanes(d);
  const auto high = hn::Set(d, 0.5f * scale), low = hn::Set(d, -0.5f * scale), m = hn::Set(d, scale);
  std::uint64_t at = 0;
  for (; at + kTile <= count; at += kTile, bytes += kStripe) {
    for (std::size_t lane = 0; lane < kStripe; lane += lanes) {
      auto byte = hn::Set(di, kZeroByte);
      const auto digit = [&](std::uint64_t stripe, std::int32_t weight) HWY_ATTR {
        const std::uint64_t i = at + stripe * kStripe + lane;
        if (HWY_TARGET == HWY_AVX2 && lane % 16 == 0) {  // the next piece, so that its first pass finds it in L2
          prefetch(values + i, count * sizeof(float));
          if constexpr (has_in) prefetch(in + i, count * sizeof(float));
        }
        auto a = hn::LoadU(d, values + i);
        if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i));
        const auto plus = hn::Gt(a, high), minus = hn::Lt(a, low);
        const auto w = hn::Set(di, weight);
        byte = hn::Add(byte, hn::IfThenElseZero(hn::RebindMask(di, plus), w));
        byte = hn::Sub(byte, hn::IfThenElseZero(hn::RebindMask(di, minus), w));
        if constexpr (has_out) {
          a = hn::IfThenElse(plus, hn::Sub(a, m), a);
          a = hn::IfThenElse(minus, hn::Add(a, m), a);
          hn::StoreU(a, d, out + i);
        }
      };
      digit(0, 81);
      digit(1, 27);
      digit(2, 9);
      digit(3, 3);
      digit(4, 1);
      hn::StoreU(hn::DemoteTo(D8(), byte), D8(), bytes + lane);
    }
  }
  if (at == count) return;
  const std::uint32_t width = stripe(at, count);
  for (std::uint32_t i = 0; i < width; ++i) {
    int q[5] = {};
    for (std::uint32_t j = 0; j < 5 && at + j * width + i < count; ++j) {
      const std::uint64_t k = at + j * width + i;
      const float a = has_in ? values[k] + in[k] : values[k];  // adding 0 would lose -0
      q[j] = quantize(a, scale);
      if constexpr (has_out) out[k] = q[j] > 0 ? a - scale : q[j] < 0 ? a + scale : a;
    }
    bytes[i] = pack(q[0], q[1], q[2], q[3], q[4]);
  }
}

void EncodeTiles(const float* values, const float* in, float* out, std::uint64_t count, float scale,
                 std::uint8_t* bytes) {
  if (in && out) return encode_tiles<true, true>(values, in, out, count, scale, bytes);
  if (in) return encode_tiles<true, false>(values, in, out, count, scale, bytes);
  if (out) return encode_tiles<false, true>(values, in, out, count, scale, bytes);
  encode_tiles<false, false>(values, in, out, count, scale, bytes);
}

std::uint8_t Highest(const std::uint8_t* bytes, std::uint64_t n) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const std::size_t lanes = hn::Lanes(d);
  auto top = hn::Zero(d);
  std::uint64_t i = 0;
  for (; i + lanes <= n; i += lanes) top = hn::Max(top, hn::LoadU(d, bytes + i));
  HWY_ALIGN std::uint8_t each[64];
  hn::Store(top, d, each);
  std::uint8_t highest = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) highest = each[lane] > highest ? each[lane] : highest;
  for (; i < n; ++i) highest = bytes[i] > highest ? bytes[i] : highest;
  return highest;
}

#if HWY_TARGET <= HWY_AVX3
// A tile's 32 bytes to the 32-bit masks of its plus and minus digits by two comparisons a digit; then 16 floats take
// two masked adds.
HWY_INLINE void add_tile(const std::uint8_t* bytes, __m512 m, float* acc) {
  __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  const auto add = [&](int stripe, int weight) HWY_ATTR {
    const __m256i w = _mm256_set1_epi8(static_cast<char>(weight)), w2 = _mm256_set1_epi8(static_cast<char>(2 * weight));
    const __mmask32 some = _mm256_cmpge_epu8_mask(rest, w), plus = _mm256_cmpge_epu8_mask(rest, w2);
    rest = _mm256_mask_sub_epi8(rest, some, rest, w);
    rest = _mm256_mask_sub_epi8(rest, plus, rest, w);
    const __mmask32 minus = ~some;
    float* p = acc + stripe * static_cast<int>(kStripe);
    const auto half = [&](float* q, __mmask16 up, __mmask16 down) HWY_ATTR {
      __m512 v = _mm512_loadu_ps(q);
      v = _mm512_mask_add_ps(v, up, v, m);
      v = _mm512_mask_sub_ps(v, down, v, m);
      _mm512_storeu_ps(q, v);
    };
    half(p, static_cast<__mmask16>(plus), static_cast<__mmask16>(minus));
    half(p + 16, static_cast<__mmask16>(plus >> 16), static_cast<__mmask16>(minus >> 16));
  };
  add(0, 81);
  add(1, 27);
  add(2, 9);
  add(3, 3);
  add(4, 1);
}
#elif HWY_TARGET == HWY_AVX2
// Digits 0, 1 and 2 as two bits each of a 32-bit lane choose among the three addends. Bytes become pairs of quotient
// and remainder by 27, below 9 and 27, so that one table of three digits serves both.
HWY_INLINE void add_tile(const std::uint8_t* bytes, __m256 addends, float* acc) {
  const auto table = [](std::uint8_t first, std::uint8_t last) HWY_ATTR {
    alignas(16) std::uint8_t fields[16] = {};
    for (std::uint8_t x = first; x <= last; ++x)
      fields[x - first] = static_cast<std::uint8_t>(x / 9 << 4 | x / 3 % 3 << 2 | x % 3);
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(fields)));
  };
  const __m256i below_16 = table(0, 15), from_16 = table(16, 26);
  const auto words = [&](__m256i shifted) HWY_ATTR {  // of bytes times 256
    const __m256i quotient = _mm256_mulhi_epu16(_mm256_srli_epi16(shifted, 8), _mm256_set1_epi16(65536 / 27 + 1));
    const __m256i both = _mm256_add_epi16(shifted, _mm256_mullo_epi16(quotient, _mm256_set1_epi16(1 - 27 * 256)));
    return _mm256_or_si256(_mm256_shuffle_epi8(below_16, _mm256_add_epi8(both, _mm256_set1_epi8(0x70))),
                           _mm256_shuffle_epi8(from_16, _mm256_sub_epi8(both, _mm256_set1_epi8(16))));
  };
  // In an order in which unpacking within halves gives neighbours.
  const __m256i base = _mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)),
                                                   _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  const auto add8 = [&](__m256i fields, float* p) HWY_ATTR {
    const auto add = [&](__m256i at, std::uint32_t stripe) HWY_ATTR {
      float* const q = p + stripe * kStripe;
      _mm256_storeu_ps(q, _mm256_add_ps(_mm256_loadu_ps(q), _mm256_permutevar_ps(addends, at)));
    };
    add(_mm256_srli_epi32(fields, 2), 0);
    add(fields, 1);
    add(_mm256_srli_epi32(fields, 12), 2);
    add(_mm256_srli_epi32(fields, 10), 3);
    add(_mm256_srli_epi32(fields, 8), 4);
  };
  const auto add16 = [&](__m256i fields, float* p) HWY_ATTR {
    add8(_mm256_unpacklo_epi16(fields, fields), p);
    add8(_mm256_unpackhi_epi16(fields, fields), p + 8);
  };
  add16(words(_mm256_unpacklo_epi8(_mm256_setzero_si256(), base)), acc);
  add16(words(_mm256_unpackhi_epi8(_mm256_setzero_si256(), base)), acc + 16);
}
#else
// The digits of neighbouring bytes, negated: of stripe j's elements from digits[j * kStripe + lane] on.
HWY_INLINE void take_digits(const std::uint8_t* bytes, std::size_t lane, std::int8_t* digits) {
  const D8s d8;
  const hn::RebindToSigned<D8s> ds;
  auto rest = hn::LoadU(d8, bytes);
  const auto one = hn::Set(ds, 1);
  const auto peel = [&](std::size_t stripe, std::uint8_t weight) HWY_ATTR {
    const auto w = hn::Set(d8, weight), w2 = hn::Set(d8, static_cast<std::uint8_t>(2 * weight));
    const auto some = hn::VecFromMask(d8, hn::Eq(hn::Max(rest, w), rest)),  // rest >= w
        plus = hn::VecFromMask(d8, hn::Eq(hn::Max(rest, w2), rest));
    rest = hn::Sub(hn::Sub(rest, hn::And(some, w)), hn::And(plus, w));
    hn::StoreU(hn::Add(one, hn::BitCast(ds, hn::Add(some, plus))), ds, digits + stripe * kStripe + lane);
  };
  peel(0, 81);
  peel(1, 27);
  peel(2, 9);
  peel(3, 3);
  hn::StoreU(hn::Sub(one, hn::BitCast(ds, rest)), ds, digits + 4 * kStripe + lane);
}
#endif

void DecodeTiles(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t count, float scale, float* HWY_RESTRICT acc) {
  const Df d;
  [[maybe_unused]] const Di di;
  [[maybe_unused]] const D8s d8;
  [[maybe_unused]] const hn::Rebind<std::int8_t, Df> dq;
  [[maybe_unused]] const std::size_t lanes = hn::Lanes(d);
  [[maybe_unused]] HWY_ALIGN std::int8_t digits[kTile];
  std::uint64_t zero_stripe;
  std::memset(&zero_stripe, kZeroByte, sizeof zero_stripe);
  const auto m = hn::Set(d, scale);
  std::uint64_t at = 0;
  for (; at + kTile <= count; at += kTile, bytes += kStripe) {
    std::uint64_t w[4];
    std::memcpy(w, bytes, sizeof w);
    // Zeros change no bit, of -0 neither (a caller may accumulate onto it), and most of a sparse gradient is zeros.
    if (((w[0] ^ zero_stripe) | (w[1] ^ zero_stripe) | (w[2] ^ zero_stripe) | (w[3] ^ zero_stripe)) == 0) continue;
#if HWY_TARGET <= HWY_AVX3
    add_tile(bytes, m.raw, acc + at);
#elif HWY_TARGET == HWY_AVX2
    for (std::size_t line = 0; line < kTile; line += 16) prefetch(acc + at + line, count * sizeof(float));
    // -0 changes no bit, of -0 neither.
    add_tile(bytes, _mm256_setr_ps(-scale, -0.0f, scale, 0, -scale, -0.0f, scale, 0), acc + at);
#else
    for (std::size_t lane = 0; lane < kStripe; lane += hn::Lanes(d8)) take_digits(bytes + lane, lane, digits);
    for (std::size_t i = 0; i < kTile; i += lanes) {
      float* const p = acc + at + i;
      const auto q = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dq, digits + i)));
      hn::StoreU(hn::NegMulAdd(q, m, hn::LoadU(d, p)), d, p);  // less +0: -0 stays. The product is exact
    }
#endif
  }
  if (at == count) return;
  const std::uint32_t width = stripe(at, count);
  for (std::uint32_t i = 0; i < width; ++i)
    for (std::uint32_t j = 0; j < 5 && at + j * width + i < count; ++j)
      if (const int digit = unpack(bytes[i], static_cast<int>(j))) acc[at + j * width + i] += dequantize(digit, scale);
}

void PackDigits(const std::uint8_t* HWY_RESTRICT digits, std::uint64_t count, std::uint8_t* HWY_RESTRICT bytes) {
  const hn::CappedTag<std::uint8_t, kStripe> d;
  std::uint64_t at = 0;
  for (; at + kTile <= count; at += kTile, bytes += kStripe)
    for (std::size_t lane = 0; lane < kStripe; lane += hn::Lanes(d)) {
      auto byte = hn::LoadU(d, digits + at + lane);
      for (std::uint32_t j = 1; j < 5; ++j)
        byte = hn::Add(hn::Add(byte, hn::Add(byte, byte)), hn::LoadU(d, digits + at + j * kStripe + lane));
      hn::StoreU(byte, d, bytes + lane);
    }
  if (at == count) return;
  const std::uint32_t width = stripe(at, count);
  for (std::uint32_t i = 0; i < width; ++i) {
    int byte = 0;
    for (std::uint64_t k = at + i, j = 0; j < 5; ++j, k += width) byte = 3 * byte + (k < count ? digits[k] : 1);
    bytes[i] = static_cast<std::uint8_t>(byte);
  }
}

}  // namespace crimp::threelc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace threelc {
HWY_EXPORT(EncodeTiles);
HWY_EXPORT(DecodeTiles);
HWY_EXPORT(Highest);
HWY_EXPORT(PackDigits);

void pack_digits(const std::uint8_t* digits, std::uint64_t count, std::uint8_t* bytes) {
  HWY_DYNAMIC_DISPATCH(PackDigits)(digits, count, bytes);
}
bool legal_base(const std::uint8_t* bytes, std::uint64_t size) {
  return HWY_DYNAMIC_DISPATCH(Highest)(bytes, size) < kFirstRun;
}
void add_base(const std::uint8_t* bytes, std::uint64_t count, float scale, float* acc) {
  HWY_DYNAMIC_DISPATCH(DecodeTiles)(bytes, count, scale, acc);
}

class ThreeLc final : public Codec {
 public:
  explicit ThreeLc(const SpecValues& values)
      : s_(values[kSparsity]), zero_run_(values[kZeroRun]), entropy_(values[kEntropy]), traits_(kTraits) {
    if (entropy_ && !zero_run_) values.refuse(kEntropy, "0 where zero_run=0");
    traits_.fixed_size = !zero_run_;
    traits_.selects = values[kScaleOf] == ScaleOf::tensor;
  }
  const Traits& traits() const override { return traits_; }
  std::uint32_t parameter_word() const override { return (zero_run_ ? 1 : 0) + (entropy_ ? 2 : 0); }
  std::size_t piece_bound(std::uint64_t count) const override { return sizeof(float) + base_bytes(count) + entropy_; }

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    return {.scale = largest_magnitude(values, residual, count)};
  }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const std::uint64_t n = base_bytes(piece.count);
    const float scale = s_ * (traits_.selects ? piece.selection.scale
                                              : largest_magnitude(piece.values, piece.residual_in, piece.count));
    std::memcpy(bytes, &scale, sizeof scale);
    bytes += sizeof scale;
    const auto encode = [&](std::uint8_t* base) {
      HWY_DYNAMIC_DISPATCH(EncodeTiles)(piece.values, piece.residual_in, piece.residual_out, piece.count, scale, base);
    };
    if (!zero_run_) {
      encode(bytes);
      return sizeof scale + n;
    }
    alignas(64) std::uint8_t base[kPieceElements / 5];
    alignas(64) std::uint8_t coded[kPieceElements / 5 + 64];
    encode(base);
    const std::size_t length = zero_run_encode(base, n, coded);
    if (entropy_) return sizeof scale + prefix_encode(coded, length, n, bytes);
    std::memcpy(bytes, coded, length);
    return sizeof scale + length;
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    float scale;
    if (in.size() < sizeof scale) return false;
    std::memcpy(&scale, in.data(), sizeof scale);
    if (!std::isfinite(scale) || std::signbit(scale)) return false;
    in = in.subspan(sizeof scale);
    alignas(64) std::uint8_t expanded[kPieceElements / 5 + kExpansionSlack];
    const std::uint8_t* base = in.data();
    const std::size_t n = base_bytes(count);
    if (entropy_) {
      alignas(64) std::uint8_t coded[kMostSymbols + 32];
      const std::size_t length = prefix_decode(in, n, coded);
      if (length > n || !zero_run_decode(coded, length, expanded, n)) return false;
      base = expanded;
    } else if (zero_run_) {
      if (!zero_run_decode(in.data(), in.size(), expanded, n)) return false;
      base = expanded;
    } else {
      if (in.size() != n) return false;
      if (!legal_base(in.data(), n)) return false;
    }
    add_base(base, count, scale, acc);
    return true;
  }

  // Measured, unit.meaning repeats it: an owner meets few large sums at a time, later and larger with larger s.
  double error_of_two_encodings() const override {
    return 1.2 + 1.2 * static_cast<double>(s_) * static_cast<double>(s_);
  }

  static constexpr Traits kTraits{.name = "3lc",
                                  .wire_id = 4,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
  float s_;
  bool zero_run_, entropy_;
  Traits traits_;
};

}  // namespace threelc

CodecEntry threelc_entry() {
  return {
      {.summary = "ternary with error feedback, five values a byte, zero runs coded",
       .formula =
           "M = s max|a| of a piece (scale=tensor: of a tensor), q = +1 where a > M/2, -1 where a < -M/2, else 0, d = M q",
       .source = "3LC: Lim, Andersen, Kaminsky, MLSys 2019",
       .bits = "0.1 to 1.6, about 1 with s = 1, less with scale=tensor",
       .use = "the default: slow networks, any model; larger s where the network is very slow",
       .traits = threelc::ThreeLc::kTraits,
       .parameters = {threelc::kSparsity, threelc::kZeroRun, threelc::kEntropy, kScaleOf}},
      make_as<threelc::ThreeLc>};
}

}  // namespace crimp
#endif
