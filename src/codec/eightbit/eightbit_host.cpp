// Dynamic 8-bit numbers on the host. The table times M has 128 floats. With AVX-512 VBMI it lies in registers as four
// planes of bytes, and 64 codes take one permute a plane; AVX2 computes 32 at once; other targets gather.
#include "codec/eightbit/eightbit.hpp"

#include <cmath>
#include <cstring>

#include "codec/coding/largest.hpp"
#include "codec/coding/prefetch.hpp"
#include "codec/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/eightbit/eightbit_host.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::eightbit::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using Du = hn::RebindToUnsigned<Df>;
using D8 = hn::Rebind<std::uint8_t, Df>;
constexpr std::size_t kLanes = hn::MaxLanes(Df());

// x cut to an integer; it is below 2^31.
HWY_INLINE hn::Vec<Di> whole(hn::Vec<Df> x) {
#if HWY_TARGET == HWY_AVX2
  return hn::Vec<Di>{_mm256_cvttps_epi32(x.raw)};  // no correction of what overflows
#else
  return hn::ConvertTo(Di(), x);
#endif
}

// Codes of 0..127 and, in bit 7, the sign; on AVX2 Quotients::packed adds the signs, of 32 codes at once.
class Coder {
 public:
  explicit Coder(float inverse) : reciprocal_(hn::Set(Df(), inverse)) {}
  HWY_INLINE hn::Vec<Di> operator()(hn::Vec<Df> a) const {
    const Df d;
    const Di di;
    auto x = hn::Mul(hn::Abs(a), reciprocal_), y = hn::Set(d, 127.0f);
#if HWY_TARGET <= HWY_AVX3
    // Of the seven lines one or two are the least in an octave; 2^-30 has the code of all that is less.
    x = hn::Max(x, hn::Set(d, 0x1p-30f));
    const __m512i octave = _mm512_srli_epi32(hn::BitCast(di, x).raw, 23);
    const auto line = [&](const OctaveLines::Of& of) HWY_ATTR {
      const hn::Vec<Df> slope{_mm512_permutex2var_ps(_mm512_load_ps(of.slope), octave, _mm512_load_ps(of.slope + 16))};
      const hn::Vec<Df> offset{
          _mm512_permutex2var_ps(_mm512_load_ps(of.offset), octave, _mm512_load_ps(of.offset + 16))};
      return hn::Add(hn::Mul(slope, x), offset);
    };
    y = hn::Min(hn::Min(line(kOctaveLines.left), line(kOctaveLines.right)), y);
    const __m512i code = _mm512_cvttps_epi32(y.raw), upper = _mm512_srli_epi32(hn::BitCast(di, a).raw, 24);
    return hn::Vec<Di>{_mm512_ternarylogic_epi32(code, upper, _mm512_set1_epi32(128), 0xf8)};  // code | (upper & 128)
#else
    for (const Line& line : kLines.of)
      y = hn::Min(hn::Add(hn::Mul(hn::Set(d, line.slope), x), hn::Set(d, line.offset)), y);
#if HWY_TARGET == HWY_AVX2
    return whole(y);
#else
    return hn::Or(whole(y), hn::And(hn::BitCast(di, hn::ShiftRight<24>(hn::BitCast(Du(), a))), hn::Set(di, 128)));
#endif
#endif
  }

 private:
  hn::Vec<Df> reciprocal_;
};

#if HWY_TARGET <= HWY_AVX3_DL
// Decodes 64 codes at once. Their order: lane L of four holds, in its dword q, the elements 16 q + 4 L + 0..3, as
// packing 4 vectors gives it.
class Planes {
 public:
  explicit Planes(const float* table) {
    for (int b = 0; b < 4; ++b) {
      alignas(64) std::uint8_t bytes[kCodes];
      for (std::uint32_t c = 0; c < kCodes; c += 16)
        _mm_store_si128(reinterpret_cast<__m128i*>(bytes + c),
                        _mm512_cvtepi32_epi8(_mm512_srl_epi32(_mm512_load_si512(table + c), _mm_cvtsi32_si128(8 * b))));
      low_[b] = _mm512_load_si512(bytes);
      high_[b] = _mm512_load_si512(bytes + 64);
    }
  }
  // In element order, or back from it.
  static HWY_INLINE __m512i transposed(__m512i packed) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), packed);
  }
  static HWY_INLINE __m512i packed(const hn::Vec<Di>* codes) {
    return _mm512_packus_epi16(_mm512_packus_epi32(codes[0].raw, codes[1].raw),
                               _mm512_packus_epi32(codes[2].raw, codes[3].raw));
  }
  HWY_INLINE void decode(__m512i packed, hn::Vec<Df>* d) const {
    __m512i of[4];
    for (int b = 0; b < 4; ++b) of[b] = _mm512_permutex2var_epi8(low_[b], packed, high_[b]);
    of[3] = _mm512_ternarylogic_epi32(of[3], packed, _mm512_set1_epi8(-128), 0xf8);
    const __m512i l0 = _mm512_unpacklo_epi8(of[0], of[1]), h0 = _mm512_unpackhi_epi8(of[0], of[1]);
    const __m512i l1 = _mm512_unpacklo_epi8(of[2], of[3]), h1 = _mm512_unpackhi_epi8(of[2], of[3]);
    d[0] = hn::Vec<Df>{_mm512_castsi512_ps(_mm512_unpacklo_epi16(l0, l1))};
    d[1] = hn::Vec<Df>{_mm512_castsi512_ps(_mm512_unpackhi_epi16(l0, l1))};
    d[2] = hn::Vec<Df>{_mm512_castsi512_ps(_mm512_unpacklo_epi16(h0, h1))};
    d[3] = hn::Vec<Df>{_mm512_castsi512_ps(_mm512_unpackhi_epi16(h0, h1))};
  }

 private:
  __m512i low_[4], high_[4];
};
#elif HWY_TARGET == HWY_AVX2
// Where the dividends of decade k start, and what turns them into quotients by 20'000'000 / 5^k. One float is too
// coarse for that, so `inverse` is the float nearest to it / (1 + kMissing), and dividend * inverse * (1 + kMissing) is
// rounded once. kMissing was searched for: with it the nearest floats are so near that all 128 quotients are rounded
// correctly.
constexpr float kMissing = -0x1.ffp-18f;
struct Decades {
  alignas(32) float start[8], inverse[8];
};
constexpr Decades make_decades() {
  Decades decades{};
  std::uint32_t unit = 20'000'000;
  for (std::uint32_t k = 0; k < kDecades; ++k, unit /= 5) {
    decades.start[k] = static_cast<float>((1u << 23) + k + 8 * ((16u << k) - 9));
    decades.inverse[k] = static_cast<float>(0.125 / unit / (1.0 + static_cast<double>(kMissing)));
  }
  return decades;
}
constexpr Decades kDecadesOf = make_decades();

// The table's formula in place of a gather, for 32 codes at once. In decade k the dividend is 18 c + 9 - 2^(k+4), and
// eight times that is w - start with w = 2^23 + 144 c + k, whose low bits look the decade up. Two codes add a multiple
// of 8 to w: with 56 the dividend of 0 is 0, with 72 that of 127 is the divisor.
// The order of codes is that of packing 4 vectors: half L of two has, in its dword q, the elements 8 q + 4 L + 0..3.
class Quotients {
 public:
  explicit Quotients(const float* table)
      : scale_(_mm256_set1_ps(table[kCodes - 1])), minus_scale_(_mm256_set1_ps(-table[kCodes - 1])) {}
  // Codes without signs, and where the signs come from.
  static HWY_INLINE __m256i packed(const hn::Vec<Di>* codes, const hn::Vec<Df>* a) {
    const Di di;
    const __m256i c = _mm256_packus_epi16(_mm256_packus_epi32(codes[0].raw, codes[1].raw),
                                          _mm256_packus_epi32(codes[2].raw, codes[3].raw));
    const __m256i sign = _mm256_packs_epi16(_mm256_packs_epi32(hn::BitCast(di, a[0]).raw, hn::BitCast(di, a[1]).raw),
                                            _mm256_packs_epi32(hn::BitCast(di, a[2]).raw, hn::BitCast(di, a[3]).raw));
    return _mm256_or_si256(c, _mm256_andnot_si256(_mm256_set1_epi8(kCodes - 1), sign));
  }
  // In element order, and back from it.
  static HWY_INLINE __m256i transposed(__m256i packed) {
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  static HWY_INLINE __m256i packed(__m256i codes) {
    return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  }
  // The signs are those of bit 31 of 4 vectors in element order.
  HWY_INLINE void decode(__m256i packed, const __m256* signs, hn::Vec<Df>* d) const {
    const __m256i all = _mm256_set1_epi8(kCodes - 1), c = _mm256_and_si256(packed, all);
    // What is added to 144 c: by bits 4 to 6, and what differs from that for the codes 127, 0, 1, 2, .. 14.
    const __m256i by_upper = _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 4, 5, 5, 6, 6, 6, 6, 3, 4, 5, 5, 6, 6, 6, 6));
    const __m256i change =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(72, 56 ^ 3, 3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(packed, 4), _mm256_set1_epi8(15));
    const __m256i next = _mm256_and_si256(_mm256_add_epi8(packed, _mm256_set1_epi8(1)), all);
    const __m256i k = _mm256_xor_si256(_mm256_shuffle_epi8(by_upper, upper),
                                       _mm256_shuffle_epi8(change, _mm256_min_epu8(next, _mm256_set1_epi8(15))));
    const __m256i weights = _mm256_set1_epi16(256 + 144), exponent = _mm256_set1_epi16(0x4b00);
    const __m256i low = _mm256_maddubs_epi16(weights, _mm256_unpacklo_epi8(c, k)),
                  high = _mm256_maddubs_epi16(weights, _mm256_unpackhi_epi8(c, k));
    d[0] = quotients(_mm256_unpacklo_epi16(low, exponent), signs[0]);
    d[1] = quotients(_mm256_unpackhi_epi16(low, exponent), signs[1]);
    d[2] = quotients(_mm256_unpacklo_epi16(high, exponent), signs[2]);
    d[3] = quotients(_mm256_unpackhi_epi16(high, exponent), signs[3]);
  }

 private:
  HWY_INLINE hn::Vec<Df> quotients(__m256i w, __m256 sign) const {
    const __m256 start = _mm256_permutevar8x32_ps(_mm256_load_ps(kDecadesOf.start), w),
                 inverse = _mm256_permutevar8x32_ps(_mm256_load_ps(kDecadesOf.inverse), w);
    const __m256 dividend = _mm256_sub_ps(_mm256_castsi256_ps(w), start);
    const __m256 missing = _mm256_mul_ps(_mm256_mul_ps(dividend, inverse), _mm256_set1_ps(kMissing));
    const __m256 t = _mm256_fmadd_ps(dividend, inverse, missing);
    return hn::Vec<Df>{_mm256_mul_ps(t, _mm256_blendv_ps(scale_, minus_scale_, sign))};
  }

  __m256 scale_, minus_scale_;
};
#else
class Decoder {
 public:
  explicit Decoder(const float* table) : table_(table) {}
  HWY_INLINE hn::Vec<Df> operator()(hn::Vec<Di> code) const {
    const Di di;
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(di, 128)));
    return hn::Or(hn::GatherIndex(Df(), table_, hn::And(code, hn::Set(di, 127))), hn::BitCast(Df(), sign));
  }

 private:
  const float* table_;
};
#endif

template <bool has_in, bool has_out>
HWY_INLINE void encode(const float* values, const float* in, float* out, std::uint64_t count, float inverse,
                       const float* table, std::uint8_t* codes) {
  const Df d;
  const Coder coder(inverse);
  const auto load = [&](std::uint64_t i) HWY_ATTR {
    const auto a = hn::LoadU(d, values + i);
    if constexpr (has_in) return hn::Add(a, hn::LoadU(d, in + i));
    return a;
  };
  std::uint64_t i = 0;
#if HWY_TARGET <= HWY_AVX3_DL
  const Planes planes(table);
  for (; i + 64 <= count; i += 64) {
    hn::Vec<Df> a[4], back[4];
    hn::Vec<Di> code[4];
    for (std::size_t k = 0; k < 4; ++k) code[k] = coder(a[k] = load(i + 16 * k));
    const __m512i packed = Planes::packed(code);
    // The next piece, so that its first pass finds it in L2.
    for (std::size_t k = 0; k < 4; ++k) {
      hwy::Prefetch(values + count + i + 16 * k);
      if constexpr (has_in) hwy::Prefetch(in + count + i + 16 * k);
    }
    _mm512_storeu_si512(codes + i, Planes::transposed(packed));
    if constexpr (has_out) {
      planes.decode(packed, back);
      for (std::size_t k = 0; k < 4; ++k) hn::StoreU(hn::Sub(a[k], back[k]), d, out + i + 16 * k);
    }
  }
#elif HWY_TARGET == HWY_AVX2
  const Quotients quotients(table);
  for (; i + 32 <= count; i += 32) {
    hn::Vec<Df> a[4], back[4];
    hn::Vec<Di> code[4];
    for (std::size_t k = 0; k < 4; ++k) code[k] = coder(a[k] = load(i + 8 * k));
    const __m256i packed = Quotients::packed(code, a);
    for (std::size_t line = 0; line < 32; line += 16) {  // the next piece, so that its first pass finds it in L2
      prefetch(values + i + line, count * sizeof(float));
      if constexpr (has_in) prefetch(in + i + line, count * sizeof(float));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i), Quotients::transposed(packed));
    if constexpr (has_out) {
      const __m256 signs[4] = {a[0].raw, a[1].raw, a[2].raw, a[3].raw};
      quotients.decode(packed, signs, back);
      for (std::size_t k = 0; k < 4; ++k) hn::StoreU(hn::Sub(a[k], back[k]), d, out + i + 8 * k);
    }
  }
#else
  const Decoder decoded(table);
  for (; i + kLanes <= count; i += kLanes) {
    const auto a = load(i);
    const auto code = coder(a);
    hn::StoreU(hn::DemoteTo(D8(), code), D8(), codes + i);
    if constexpr (has_out) hn::StoreU(hn::Sub(a, decoded(code)), d, out + i);
  }
#endif
  for (; i < count; ++i) {
    const float a = has_in ? values[i] + in[i] : values[i];
    const std::uint32_t code = code_of(std::fabs(a) * inverse);
    codes[i] = static_cast<std::uint8_t>(code | (std::signbit(a) ? 128 : 0));
    if constexpr (has_out) out[i] = a - std::copysign(table[code], a);
  }
}

void Encode(const float* values, const float* in, float* out, std::uint64_t count, float inverse, const float* table,
            std::uint8_t* codes) {
  if (in && out) return encode<true, true>(values, in, out, count, inverse, table, codes);
  if (in) return encode<true, false>(values, in, out, count, inverse, table, codes);
  if (out) return encode<false, true>(values, in, out, count, inverse, table, codes);
  encode<false, false>(values, in, out, count, inverse, table, codes);
}

void AddDecoded(const std::uint8_t* codes, std::uint64_t count, const float* table, float* acc) {
  const Df d;
  std::uint64_t i = 0;
#if HWY_TARGET <= HWY_AVX3_DL
  const Planes planes(table);
  for (; i + 64 <= count; i += 64) {
    hn::Vec<Df> value[4];
    prefetch(codes + i, kPieceElements);
    planes.decode(Planes::transposed(_mm512_loadu_si512(codes + i)), value);
    for (std::size_t k = 0; k < 4; ++k)
      hn::StoreU(hn::Add(hn::LoadU(d, acc + i + 16 * k), value[k]), d, acc + i + 16 * k);
  }
#elif HWY_TARGET == HWY_AVX2
  const Quotients quotients(table);
  for (; i + 32 <= count; i += 32) {
    hn::Vec<Df> value[4];
    __m256 signs[4];
    prefetch(codes + i, kPieceElements);
    for (std::size_t line = 0; line < 32; line += 16) prefetch(acc + i + line, count * sizeof(float));
    for (std::size_t k = 0; k < 4; ++k)
      signs[k] = _mm256_castsi256_ps(_mm256_cvtepi8_epi32(_mm_loadu_si64(codes + i + 8 * k)));
    const __m256i in_order = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i));
    quotients.decode(Quotients::packed(in_order), signs, value);
    for (std::size_t k = 0; k < 4; ++k)
      hn::StoreU(hn::Add(hn::LoadU(d, acc + i + 8 * k), value[k]), d, acc + i + 8 * k);
  }
#else
  const Decoder decoded(table);
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::Add(hn::LoadU(d, acc + i), decoded(hn::PromoteTo(Di(), hn::LoadU(D8(), codes + i)))), d, acc + i);
#endif
  for (; i < count; ++i) acc[i] += codes[i] & 128 ? -table[codes[i] & 127] : table[codes[i]];
}

}  // namespace crimp::eightbit::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace eightbit {
HWY_EXPORT(Encode);
HWY_EXPORT(AddDecoded);

// What the codes of a piece decode to.
struct ScaledTable {
  explicit ScaledTable(float scale) {
    for (std::uint32_t c = 0; c < kCodes; ++c) of[c] = kTable.of[c] * scale;
  }
  alignas(64) float of[kCodes];
};

class EightBit final : public Codec {
 public:
  explicit EightBit(const SpecValues& values) : traits_(kTraits) {
    traits_.selects = values[kScaleOf] == ScaleOf::tensor;
  }
  const Traits& traits() const override { return traits_; }
  std::size_t piece_bound(std::uint64_t count) const override { return sizeof(float) + count; }

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    return {.scale = largest_magnitude(values, residual, count)};
  }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const float largest =
        traits_.selects ? piece.selection.scale : largest_magnitude(piece.values, piece.residual_in, piece.count);
    const float scale = scale_of(largest);
    std::memcpy(bytes, &scale, sizeof scale);
    const ScaledTable table(scale);
    HWY_DYNAMIC_DISPATCH(Encode)
    (piece.values, piece.residual_in, piece.residual_out, piece.count, inverse_of(scale), table.of,
     bytes + sizeof scale);
    return piece_bound(piece.count);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    float scale;
    if (in.size() != piece_bound(count)) return false;
    std::memcpy(&scale, in.data(), sizeof scale);
    if (!std::isfinite(scale) || std::signbit(scale)) return false;
    const ScaledTable table(scale);
    HWY_DYNAMIC_DISPATCH(AddDecoded)(in.data() + sizeof scale, count, table.of, acc);
    return true;
  }

  static constexpr Traits kTraits{.name = "8bit",
                                  .wire_id = 8,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxMagnitude,
                                  .hides_stores = true};

 private:
  Traits traits_;
};

}  // namespace eightbit

CodecEntry eightbit_entry() {
  return {
      {.summary = "dynamic 8-bit numbers: sign, decade below the piece's largest magnitude, position in the decade",
       .formula =
           "M = max |a| of a piece, d = sign(a) M t, t the middle of the cell that |a| / M lies in: 2^k cells in the decade up to 10^(k-6), k = 0..6; but t = 1 in the "
           "uppermost cell, [0.986, 1], so that M comes back, and 0 below 10^-7",
       .source = "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016",
       .bits = "8.003",
       .use =
           "a factor of 4, over seven decades in one piece: off by at most 0.7 % of M, and 1.4 % in the uppermost cell, whose values become M: 0.7 % too large on "
           "average. Only with memory=residual does that even out",
       .traits = eightbit::EightBit::kTraits,
       .parameters = {kScaleOf}},
      make_as<eightbit::EightBit>};
}

}  // namespace crimp
#endif
