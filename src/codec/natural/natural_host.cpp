// Natural compression on the host: integer arithmetic on the bits of floats, one byte an element in the elements'
// order.
#include <cstring>

#include "codec/coding/dither.hpp"
#include "codec/coding/prefetch.hpp"
#include "codec/natural/natural.hpp"
#include "codec/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/natural/natural_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::natural::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Du = hn::RebindToUnsigned<Df>;
using Di = hn::RebindToSigned<Df>;
using D8 = hn::Rebind<std::uint8_t, Df>;

HWY_INLINE hn::Vec<Df> value_of(hn::Vec<Du> code) {
  const Du d;
  const auto e = hn::And(code, hn::Set(d, kTop));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(code, e));
  const auto bits = hn::Or(hn::ShiftLeft<23>(hn::Add(e, hn::Set(d, kOffset))), sign);
  return hn::BitCast(Df(), hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), bits));
}

template <bool has_in, bool has_out>
HWY_INLINE void encode_tile(const float* values, const float* in, float* out, const RandomCounter& counter,
                            std::uint32_t tile, std::uint8_t* HWY_RESTRICT bytes) {
  const Df d;
  const Du du;
  const Di di;
  crimp::dither::HWY_NAMESPACE::for_tile(
      counter, dither::kRounding, tile, [&](std::size_t half, std::size_t lane, hn::Vec<Du> random) HWY_ATTR {
        const std::size_t i = half * dither::kLanes + lane;
        auto a = hn::LoadU(d, values + i);
        if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i));
        const auto size = hn::Abs(a);
        auto bits = hn::BitCast(di, size);
        // Below 2^-63 the two neighbours are 0 and 2^-63: 2^-63 + size has the mantissa that decides, one exponent
        // higher.
        const auto least = hn::BitCast(di, hn::Set(du, kLeast));
        const auto lifted = hn::Sub(hn::BitCast(di, hn::Add(size, hn::BitCast(d, least))), hn::Set(di, 1 << 23));
        bits = hn::IfThenElse(hn::Lt(bits, least), lifted, bits);
        bits = hn::Add(bits, hn::BitCast(di, hn::Add(hn::ShiftLeft<7>(random), hn::Set(du, 64))));
        const auto e = hn::Min(hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, kOffset)), hn::Set(di, kTop));
        const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(du, a)));
        const auto code = hn::Or(hn::BitCast(du, e), sign);
        hn::StoreU(hn::DemoteTo(D8(), hn::BitCast(di, code)), D8(), bytes + i);
        if constexpr (has_out) hn::StoreU(hn::Sub(a, value_of(code)), d, out + i);
      });
}

template <bool has_in, bool has_out>
HWY_INLINE void encode(const PieceSource& p, std::uint8_t* bytes) {
  std::uint64_t at = 0;
  std::uint32_t tile = 0;
  for (; at + dither::kTile <= p.count; at += dither::kTile, ++tile)
    encode_tile<has_in, has_out>(p.values + at, p.residual_in + (has_in ? at : 0), p.residual_out + (has_out ? at : 0),
                                 p.counter, tile, bytes + at);
  const std::uint64_t rest = p.count - at;
  if (rest == 0) return;
  alignas(64) float values[dither::kTile] = {}, in[dither::kTile] = {}, out[dither::kTile];
  alignas(64) std::uint8_t codes[dither::kTile];
  std::memcpy(values, p.values + at, rest * sizeof(float));
  if constexpr (has_in) std::memcpy(in, p.residual_in + at, rest * sizeof(float));
  encode_tile<has_in, has_out>(values, in, out, p.counter, tile, codes);
  std::memcpy(bytes + at, codes, rest);
  if constexpr (has_out) std::memcpy(p.residual_out + at, out, rest * sizeof(float));
}

void Encode(const PieceSource& p, std::uint8_t* bytes) {
  if (p.residual_in && p.residual_out) return encode<true, true>(p, bytes);
  if (p.residual_in) return encode<true, false>(p, bytes);
  if (p.residual_out) return encode<false, true>(p, bytes);
  encode<false, false>(p, bytes);
}

void DecodeAdd(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t count, float* HWY_RESTRICT acc) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const auto add = [&](const std::uint8_t* from, float* to) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to), value_of(hn::PromoteTo(Du(), hn::LoadU(D8(), from)))), d, to);
  };
  std::uint64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    prefetch(bytes + i, kPieceElements);
    for (std::size_t lane = 0; lane < 64; lane += lanes) add(bytes + i + lane, acc + i + lane);
  }
  for (; i + lanes <= count; i += lanes) add(bytes + i, acc + i);
  if (i == count) return;
  std::uint8_t codes[16] = {};
  float sums[16] = {};
  std::memcpy(codes, bytes + i, count - i);
  std::memcpy(sums, acc + i, (count - i) * sizeof(float));
  add(codes, sums);
  std::memcpy(acc + i, sums, (count - i) * sizeof(float));
}

}  // namespace crimp::natural::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace natural {
namespace {
HWY_EXPORT(Encode);
HWY_EXPORT(DecodeAdd);

class Natural final : public Codec {
 public:
  explicit Natural(const SpecValues&) {}
  const Traits& traits() const override { return kTraits; }
  std::size_t piece_bound(std::uint64_t count) const override { return count; }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    HWY_DYNAMIC_DISPATCH(Encode)(piece, bytes);
    return piece.count;
  }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != count) return false;
    HWY_DYNAMIC_DISPATCH(DecodeAdd)(in.data(), count, acc);
    return true;
  }

  static constexpr Traits kTraits{.name = "natural",
                                  .wire_id = 7,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxMagnitude,
                                  .min_magnitude = kMinMagnitude};
};

}  // namespace
}  // namespace natural

CodecEntry natural_entry() {
  return {
      {.summary = "sign and power of two, rounded at random without bias",
       .formula =
           "|d| = 2^floor(log2 |a|), or twice that with probability |a| / 2^floor(log2 |a|) - 1; below 2^-63: 2^-63 with probability |a| 2^63, else 0",
       .source = "Natural compression: Horvath et al., MSML 2022",
       .bits = "8",
       .use = "a factor of 4 without scales: any mixture of magnitudes between 2^-63 and 2^62",
       .traits = natural::Natural::kTraits},
      make_as<natural::Natural>};
}

}  // namespace crimp
#endif
