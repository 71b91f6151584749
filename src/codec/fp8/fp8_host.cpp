// 8-bit floats on the host: the largest magnitude of a block, then, from L1, rounding by integer arithmetic on the bits
// of floats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/coding/prefetch.hpp"
#include "codec/fp8/fp8.hpp"
#include "codec/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fp8/fp8_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::fp8::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Du = hn::RebindToUnsigned<Df>;
using Di = hn::RebindToSigned<Df>;
using D16 = hn::Rebind<std::int16_t, Df>;
using D8 = hn::Rebind<std::uint8_t, Df>;

// Codes, with their sign in the upper byte, to values before the scale, times 2^(bias - 15): the same fields are a
// float16 then, subnormal ones too.
template <bool e4m3>
HWY_INLINE hn::Vec<Df> value_of(hn::Vec<D16> code) {
  const D16 d;
  auto bits = hn::ShiftLeft < e4m3 ? 7 : 8 > (code);
  if constexpr (e4m3) bits = hn::And(bits, hn::Set(d, static_cast<std::int16_t>(0xbfff)));
  return hn::PromoteTo(Df(), hn::BitCast(hn::Rebind<hwy::float16_t, Df>(), bits));
}
// What value_of's are multiplied with.
template <bool e4m3>
HWY_INLINE hn::Vec<Df> scale_of(std::uint8_t scale) {
  constexpr auto more = static_cast<std::uint32_t>(15 - (e4m3 ? kE4m3 : kE5m2).bias);
  return hn::Set(Df(), scale ? std::bit_cast<float>((scale + more) << 23) : 0.0f);
}

template <bool e4m3>
HWY_INLINE hn::Vec<Du> code_of(hn::Vec<Df> x) {
  constexpr Format f = e4m3 ? kE4m3 : kE5m2;
  constexpr int drop = 23 - f.mantissa;
  const Du d;
  const Df df;
  const auto bits = hn::BitCast(d, hn::Abs(x));
  // Nearest even: half of what is dropped, less one, plus the last bit that stays.
  const auto last = hn::And(hn::ShiftRight<drop>(bits), hn::Set(d, 1));
  const auto even = hn::Add(hn::Add(bits, hn::Set(d, (1u << (drop - 1)) - 1)), last);
  const auto normal =
      hn::Sub(hn::ShiftRight<drop>(even), hn::Set(d, static_cast<std::uint32_t>(127 - f.bias) << f.mantissa));
  // Subnormal: the addition rounds to multiples of 2^(1 - bias - mantissa), the last place of `unit`.
  const auto unit = hn::Set(d, static_cast<std::uint32_t>(127 + 24 - f.bias - f.mantissa) << 23);
  const auto small = hn::Sub(hn::BitCast(d, hn::Add(hn::Abs(x), hn::BitCast(df, unit))), unit);
  const auto least = hn::Set(Di(), (128 - f.bias) << 23);
  const auto code =
      hn::IfThenElse(hn::Lt(hn::BitCast(Di(), bits), least), hn::BitCast(Di(), small), hn::BitCast(Di(), normal));
  const auto held = hn::Min(code, hn::Set(Di(), f.last));
  return hn::Or(hn::BitCast(d, held), hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(d, x))));
}

template <bool has_in>
HWY_INLINE std::uint32_t largest(const float* values, const float* in, std::uint64_t count) {
  const Df d;
  const Di di;
  const std::size_t lanes = hn::Lanes(d);
  auto top = hn::Zero(di);
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto a = hn::LoadU(d, values + i);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i));
    top = hn::Max(top, hn::BitCast(di, hn::Abs(a)));
  }
  auto bits = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, top)));
  for (; i < count; ++i)
    bits = std::max(bits, std::bit_cast<std::uint32_t>(has_in ? values[i] + in[i] : values[i]) & 0x7fffffff);
  return bits;
}

// One block; returns its scale byte.
template <bool e4m3, bool has_in, bool has_out>
HWY_INLINE std::uint8_t encode(const float* values, const float* in, float* out, std::uint64_t count,
                               std::uint8_t* HWY_RESTRICT bytes) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const std::uint8_t scale = scale_byte(largest<has_in>(values, in, count), e4m3 ? kE4m3 : kE5m2);
  const auto up = scale_of<e4m3>(scale);
  const auto down = hn::Set(d, scale ? std::bit_cast<float>((254u - scale) << 23) : 0.0f);
  const auto one = [&](const float* from, const float* more, float* rest, std::uint8_t* to) HWY_ATTR {
    auto a = hn::LoadU(d, from);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, more));
    const auto code = hn::DemoteTo(D8(), hn::BitCast(Di(), code_of<e4m3>(hn::Mul(a, down))));
    hn::StoreU(code, D8(), to);
    if constexpr (has_out)
      hn::StoreU(
          hn::Sub(a, hn::Mul(value_of<e4m3>(hn::PromoteTo(D16(), hn::BitCast(hn::RebindToSigned<D8>(), code))), up)), d,
          rest);
  };
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) one(values + i, has_in ? in + i : in, has_out ? out + i : out, bytes + i);
  if (i == count) return scale;
  const std::uint64_t left = count - i;
  float from[16] = {}, more[16] = {}, rest[16];
  std::uint8_t to[16];
  std::memcpy(from, values + i, left * sizeof(float));
  if constexpr (has_in) std::memcpy(more, in + i, left * sizeof(float));
  one(from, more, rest, to);
  std::memcpy(bytes + i, to, left);
  if constexpr (has_out) std::memcpy(out + i, rest, left * sizeof(float));
  return scale;
}

template <bool e4m3>
HWY_INLINE std::uint8_t encode_with(const float* values, const float* in, float* out, std::uint64_t count,
                                    std::uint8_t* bytes) {
  if (in && out) return encode<e4m3, true, true>(values, in, out, count, bytes);
  if (in) return encode<e4m3, true, false>(values, in, out, count, bytes);
  if (out) return encode<e4m3, false, true>(values, in, out, count, bytes);
  return encode<e4m3, false, false>(values, in, out, count, bytes);
}
std::uint8_t EncodeBlock(bool e4m3, const float* values, const float* in, float* out, std::uint64_t count,
                         std::uint8_t* bytes) {
  return e4m3 ? encode_with<true>(values, in, out, count, bytes) : encode_with<false>(values, in, out, count, bytes);
}

template <bool e4m3>
HWY_INLINE bool decode(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t count, std::uint8_t scale,
                       float* HWY_RESTRICT acc) {
  const Df d;
  const D8 d8;
  const std::size_t lanes = hn::Lanes(d);
  const auto up = scale_of<e4m3>(scale);
  auto top = hn::Zero(d8);
  const auto add = [&](const std::uint8_t* from, float* to) HWY_ATTR {
    const auto code = hn::LoadU(d8, from);
    top = hn::Max(top, hn::And(code, hn::Set(d8, 0x7f)));
    const auto value = value_of<e4m3>(hn::PromoteTo(D16(), hn::BitCast(hn::RebindToSigned<D8>(), code)));
    hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Mul(value, up)), d, to);
  };
  std::uint64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    prefetch(bytes + i, kPieceElements);
    for (std::size_t lane = 0; lane < 64; lane += lanes) add(bytes + i + lane, acc + i + lane);
  }
  for (; i + lanes <= count; i += lanes) add(bytes + i, acc + i);
  if (i < count) {
    std::uint8_t codes[16] = {};
    float sums[16] = {};
    std::memcpy(codes, bytes + i, count - i);
    std::memcpy(sums, acc + i, (count - i) * sizeof(float));
    add(codes, sums);
    std::memcpy(acc + i, sums, (count - i) * sizeof(float));
  }
  const auto last = hn::Set(d8, scale == 0 ? 0 : (e4m3 ? kE4m3 : kE5m2).last);
  return hn::AllTrue(d8, hn::Eq(hn::Max(top, last), last));
}
bool DecodeBlock(bool e4m3, const std::uint8_t* bytes, std::uint64_t count, std::uint8_t scale, float* acc) {
  return e4m3 ? decode<true>(bytes, count, scale, acc) : decode<false>(bytes, count, scale, acc);
}

}  // namespace crimp::fp8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace fp8 {
namespace {
HWY_EXPORT(EncodeBlock);
HWY_EXPORT(DecodeBlock);

class Fp8 final : public Codec {
 public:
  explicit Fp8(const SpecValues& values) : e4m3_(values[kKind] == Kind::e4m3), block_(values[kBlock]) {}
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return (e4m3_ ? 0u : 1u) | block_ << 8; }
  std::size_t piece_bound(std::uint64_t count) const override { return blocks(count) + count; }

  std::size_t encode_piece(const PieceSource& p, std::uint8_t* bytes) const override {
    std::uint8_t* codes = bytes + blocks(p.count);
    for (std::uint64_t at = 0; at < p.count; at += block_)
      *bytes++ = HWY_DYNAMIC_DISPATCH(EncodeBlock)(e4m3_, p.values + at, p.residual_in ? p.residual_in + at : nullptr,
                                                   p.residual_out ? p.residual_out + at : nullptr,
                                                   std::min<std::uint64_t>(block_, p.count - at), codes + at);
    return piece_bound(p.count);
  }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    const std::uint8_t* codes = in.data() + blocks(count);
    for (std::uint64_t at = 0, b = 0; at < count; at += block_, ++b)
      if (in[b] > kLastScale || !HWY_DYNAMIC_DISPATCH(DecodeBlock)(
                                    e4m3_, codes + at, std::min<std::uint64_t>(block_, count - at), in[b], acc + at))
        return false;
    return true;
  }

  static constexpr Traits kTraits{.name = "fp8",
                                  .wire_id = 15,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxMagnitude};

 private:
  std::uint64_t blocks(std::uint64_t count) const { return (count + block_ - 1) / block_; }
  bool e4m3_;
  std::uint32_t block_;
};

}  // namespace
}  // namespace fp8

CodecEntry fp8_entry() {
  return {
      {.summary = "8-bit floats with a power of two per block, rounded to nearest even",
       .formula = "scale = the least power of two with max|a| / scale within the format, d = scale * fp8(a / scale)",
       .source = "OCP 8-bit Floating Point and Microscaling Formats, revisions 1.0",
       .bits = "8 and 8 / block: 8.06 by default",
       .use =
           "a factor of 4 with a relative error of 1/16 (e4m3) or 1/8 (e5m2) at most for all but the small values of a block",
       .traits = fp8::Fp8::kTraits,
       .parameters = {fp8::kKind, fp8::kBlock}},
      make_as<fp8::Fp8>};
}

}  // namespace crimp
#endif
