// INCEPTIONN on the host, 16 elements at a time: every element gets the code of its class by operations that do not
// branch on the data, and the codes of a class go one behind another into the piece's three arrays.
#include "codec/inceptionn/inceptionn.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/coding/bit_plane.hpp"
#include "codec/payload.hpp"
#include "codec/registry.hpp"
#include "memory/thread_scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/inceptionn/inceptionn_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/bit_plane-inl.h"
#include "codec/coding/compact-inl.h"

#ifndef CRIMP_INCEPTIONN_ONCE
#define CRIMP_INCEPTIONN_ONCE
namespace crimp::inceptionn {

// The elements of a class in element order, and room for a vector behind them.
struct Arrays {
  alignas(64) std::uint8_t bytes[kPieceElements + 64];
  alignas(64) std::uint16_t halves[kPieceElements + 32];
  alignas(64) float floats[kPieceElements + 16];
};
struct Sizes {
  std::size_t bytes, halves, floats;
};

}  // namespace crimp::inceptionn
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::inceptionn::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using D8 = hn::Rebind<std::uint8_t, Df>;
using D16 = hn::Rebind<std::uint16_t, Df>;
using Vf = hn::Vec<Df>;
using Vi = hn::Vec<Di>;
using Mf = hn::Mask<Df>;
constexpr std::size_t kLanes = hn::MaxLanes(Df()), kRow = 16;  // elements of a row: two bytes of a plane

// Where the sign stands in the code of a class, for each lane.
HWY_INLINE Vi sign_bit(Mf in_byte) {
  return hn::IfThenElse(hn::RebindMask(Di(), in_byte), hn::Set(Di(), 0x80), hn::Set(Di(), 0x8000));
}
HWY_INLINE Vf either(Mf in_byte, float byte, float half) {
  return hn::IfThenElse(in_byte, hn::Set(Df(), byte), hn::Set(Df(), half));
}
HWY_INLINE Vf signed_as(Vf magnitude, Mf negative) {
  return hn::Or(magnitude, hn::IfThenElseZero(negative, hn::Set(Df(), -0.0f)));
}

template <bool has_in, bool has_out>
HWY_INLINE void encode_row(const float* values, const float* in, float* out, const Limits& limits, std::uint8_t* low,
                           std::uint8_t* high, Arrays& to, Sizes& at) {
  const Df d;
  const Di di;
  Mf odd[kRow / kLanes], upper[kRow / kLanes];
  for (std::size_t v = 0; v < kRow / kLanes; ++v) {
    Vf a = hn::LoadU(d, values + v * kLanes);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + v * kLanes));
    const Vf size = hn::Abs(a);
    const Mf in_any = hn::Ge(size, hn::Set(d, limits.zero)), in_float = hn::Ge(size, hn::Set(d, 1.0f));
    upper[v] = hn::Ge(size, hn::Set(d, limits.byte));
    const Mf in_byte = hn::AndNot(upper[v], in_any), in_half = hn::AndNot(in_float, upper[v]);
    odd[v] = hn::Or(in_byte, in_float);
    const Vf units =
        hn::Min(hn::Add(hn::Mul(size, either(in_byte, limits.bytes_per_unit, 1 / kHalfUnit)), hn::Set(d, 0.5f)),
                either(in_byte, 0x7f, 0x7fff));
    const Vi whole = hn::ConvertTo(di, units);
    const Mf negative = hn::RebindMask(d, hn::Lt(hn::BitCast(di, a), hn::Zero(di)));
    const Vi code = hn::Or(whole, hn::And(sign_bit(in_byte), hn::VecFromMask(di, hn::RebindMask(di, negative))));
    const auto select = [&](Mf mask) HWY_ATTR {
      return hn::BitCast(di, compact::HWY_NAMESPACE::selected_first(hn::BitCast(d, code), mask));
    };
    const auto count = [](Mf mask) HWY_ATTR {
      return static_cast<std::size_t>(std::popcount(compact::HWY_NAMESPACE::bits_of(mask)));
    };
    hn::StoreU(hn::DemoteTo(D8(), hn::And(select(in_byte), hn::Set(di, 0xff))), D8(), to.bytes + at.bytes);
    hn::StoreU(hn::DemoteTo(D16(), select(in_half)), D16(), to.halves + at.halves);
    at.bytes += count(in_byte);
    at.halves += count(in_half);
    at.floats += compact::HWY_NAMESPACE::store_selected(a, in_float, to.floats + at.floats);
    if constexpr (has_out) {
      const Vf d_of =
          signed_as(hn::Mul(hn::ConvertTo(d, whole), either(in_byte, limits.byte_unit, kHalfUnit)), negative);
      hn::StoreU(hn::Sub(a, hn::IfThenElse(in_float, a, hn::IfThenElseZero(in_any, d_of))), d, out + v * kLanes);
    }
  }
  bit_plane::HWY_NAMESPACE::store16(d, low, [&](std::size_t lane) HWY_ATTR { return odd[lane / kLanes]; });
  bit_plane::HWY_NAMESPACE::store16(d, high, [&](std::size_t lane) HWY_ATTR { return upper[lane / kLanes]; });
}

template <bool has_in, bool has_out>
HWY_INLINE Sizes encode(const PieceSource& p, const Limits limits, std::uint8_t* low, Arrays& to) {
  std::uint8_t* const high = low + bit_plane::bytes_of(p.count);
  Sizes at{};
  std::uint64_t i = 0;
  for (; i + kRow <= p.count; i += kRow)
    encode_row<has_in, has_out>(p.values + i, p.residual_in + (has_in ? i : 0), p.residual_out + (has_out ? i : 0),
                                limits, low + i / 8, high + i / 8, to, at);
  const std::uint64_t rest = p.count - i;
  if (rest == 0) return at;
  // Zeros behind the last element are of the class that takes nothing.
  alignas(64) float values[kRow] = {}, in[kRow] = {}, out[kRow];
  std::uint8_t planes[2][2];
  std::memcpy(values, p.values + i, rest * sizeof(float));
  if constexpr (has_in) std::memcpy(in, p.residual_in + i, rest * sizeof(float));
  encode_row<has_in, has_out>(values, in, out, limits, planes[0], planes[1], to, at);
  std::memcpy(low + i / 8, planes[0], bit_plane::bytes_of(rest));
  std::memcpy(high + i / 8, planes[1], bit_plane::bytes_of(rest));
  if constexpr (has_out) std::memcpy(p.residual_out + i, out, rest * sizeof(float));
  return at;
}

Sizes Encode(const PieceSource& p, const Limits& limits, std::uint8_t* planes, Arrays& to) {
  if (p.residual_in && p.residual_out) return encode<true, true>(p, limits, planes, to);
  if (p.residual_in) return encode<true, false>(p, limits, planes, to);
  if (p.residual_out) return encode<false, true>(p, limits, planes, to);
  return encode<false, false>(p, limits, planes, to);
}

// How many elements of each class the planes name.
Sizes Count(const std::uint8_t* low, const std::uint8_t* high, std::uint64_t plane) {
  std::size_t odd = 0, upper = 0, both = 0;
  for (std::uint64_t b = 0; b < plane; b += 8) {
    std::uint64_t l = 0, h = 0;
    std::memcpy(&l, low + b, std::min<std::uint64_t>(plane - b, 8));
    std::memcpy(&h, high + b, std::min<std::uint64_t>(plane - b, 8));
    odd += static_cast<std::size_t>(std::popcount(l));
    upper += static_cast<std::size_t>(std::popcount(h));
    both += static_cast<std::size_t>(std::popcount(l & h));
  }
  return {odd - both, upper - both, both};
}

bool AllFinite(const float* values, std::size_t count) {
  const Di d;
  const auto exponent = hn::Set(d, 0x7f800000);
  auto largest = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    largest = hn::Max(largest, hn::And(hn::LoadU(d, reinterpret_cast<const std::int32_t*>(values) + i), exponent));
  bool finite = hn::AllTrue(d, hn::Lt(largest, exponent));
  for (; i < count; ++i) finite = finite && (std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000) != 0x7f800000;
  return finite;
}

HWY_INLINE void decode_row(const std::uint8_t* low, const std::uint8_t* high, const Limits& limits, const Arrays& from,
                           Sizes& at, float* acc) {
  const Df d;
  const Di di;
  for (std::size_t lane = 0; lane < kRow; lane += kLanes) {
    const Mf odd = bit_plane::HWY_NAMESPACE::load16(d, low, lane),
             upper = bit_plane::HWY_NAMESPACE::load16(d, high, lane);
    const Mf in_byte = hn::AndNot(upper, odd), in_half = hn::AndNot(odd, upper), in_float = hn::And(upper, odd);
    const auto place = [&](Vi v, Mf mask) HWY_ATTR {
      return hn::BitCast(di, compact::HWY_NAMESPACE::placed(hn::BitCast(d, v), mask));
    };
    const Vi byte = place(hn::PromoteTo(di, hn::LoadU(D8(), from.bytes + at.bytes)), in_byte),
             half = place(hn::PromoteTo(di, hn::LoadU(D16(), from.halves + at.halves)), in_half);
    const Vf whole = compact::HWY_NAMESPACE::placed(hn::LoadU(d, from.floats + at.floats), in_float);
    const Vi code = hn::IfThenElse(hn::RebindMask(di, in_byte), byte, half), sign = sign_bit(in_byte);
    const auto negative = hn::RebindMask(d, hn::Ne(hn::And(code, sign), hn::Zero(di)));
    const Vf units = hn::ConvertTo(d, hn::And(code, hn::Sub(sign, hn::Set(di, 1))));
    const Vf coded = signed_as(hn::Mul(units, either(in_byte, limits.byte_unit, kHalfUnit)), negative);
    const Vf value = hn::IfThenElse(in_float, whole, hn::IfThenElseZero(hn::Or(odd, upper), coded));
    hn::StoreU(hn::Add(hn::LoadU(d, acc + lane), value), d, acc + lane);
    const auto count = [](Mf mask) HWY_ATTR {
      return static_cast<std::size_t>(std::popcount(compact::HWY_NAMESPACE::bits_of(mask)));
    };
    at.bytes += count(in_byte);
    at.halves += count(in_half);
    at.floats += count(in_float);
  }
}

void DecodeAdd(const std::uint8_t* low, const std::uint8_t* high, std::uint64_t count, const Limits& limits_of_codec,
               const Arrays& from, float* HWY_RESTRICT acc) {
  const Limits limits = limits_of_codec;
  Sizes at{};
  std::uint64_t i = 0;
  for (; i + kRow <= count; i += kRow) decode_row(low + i / 8, high + i / 8, limits, from, at, acc + i);
  const std::uint64_t rest = count - i;
  if (rest == 0) return;
  alignas(64) float sums[kRow] = {};
  std::uint8_t planes[2][2] = {};
  std::memcpy(sums, acc + i, rest * sizeof(float));
  std::memcpy(planes[0], low + i / 8, bit_plane::bytes_of(rest));
  std::memcpy(planes[1], high + i / 8, bit_plane::bytes_of(rest));
  decode_row(planes[0], planes[1], limits, from, at, sums);
  std::memcpy(acc + i, sums, rest * sizeof(float));
}

}  // namespace crimp::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace inceptionn {
HWY_EXPORT(Encode);
HWY_EXPORT(Count);
HWY_EXPORT(AllFinite);
HWY_EXPORT(DecodeAdd);

namespace {

class Inceptionn final : public Codec {
 public:
  explicit Inceptionn(const SpecValues& values)
      : bound_exponent_(-values[kLog2Bound]), limits_(limits_of(bound_exponent_)) {}
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return static_cast<std::uint32_t>(bound_exponent_); }
  std::size_t piece_bound(std::uint64_t count) const override {
    return 2 * bit_plane::bytes_of(count) + count * sizeof(float);
  }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* out) const override {
    auto& to = thread_scratch_as<Arrays>();
    const Sizes sizes = HWY_DYNAMIC_DISPATCH(Encode)(piece, limits_, out, to);
    std::uint8_t* end = out + 2 * bit_plane::bytes_of(piece.count);
    const auto append = [&](const void* from, std::size_t size) {
      std::memcpy(end, from, size);
      end += size;
    };
    append(to.bytes, sizes.bytes);
    append(to.halves, 2 * sizes.halves);
    append(to.floats, 4 * sizes.floats);
    return static_cast<std::size_t>(end - out);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    const std::uint64_t plane = bit_plane::bytes_of(count);
    if (in.size() < 2 * plane) return false;
    const std::uint8_t *const low = in.data(), *const high = low + plane, *const codes = high + plane;
    if (!bit_plane::padded_with_zeros(low, count) || !bit_plane::padded_with_zeros(high, count)) return false;
    const Sizes sizes = HWY_DYNAMIC_DISPATCH(Count)(low, high, plane);
    if (in.size() != 2 * plane + sizes.bytes + 2 * sizes.halves + 4 * sizes.floats) return false;
    auto& from = thread_scratch_as<Arrays>();
    std::memcpy(from.bytes, codes, sizes.bytes);
    std::memcpy(from.halves, codes + sizes.bytes, 2 * sizes.halves);
    std::memcpy(from.floats, codes + sizes.bytes + 2 * sizes.halves, 4 * sizes.floats);
    if (!HWY_DYNAMIC_DISPATCH(AllFinite)(from.floats, sizes.floats)) return false;
    HWY_DYNAMIC_DISPATCH(DecodeAdd)(low, high, count, limits_, from, acc);
    return true;
  }

  static constexpr Traits kTraits{.name = "inceptionn",
                                  .wire_id = 13,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
  int bound_exponent_;
  Limits limits_;
};

}  // namespace
}  // namespace inceptionn

CodecEntry inceptionn_entry() {
  return {
      {.summary = "0, 8, 16 or 32 bits by the size of the value, under an absolute error bound",
       .formula =
           "B = 2^log2_bound, H = 2^-ceil(-log2_bound / 2): d = 0 where |a| < B; a to a multiple of H/128 where |a| < H, of 2^-15 where |a| < 1; else a",
       .source = "INCEPTIONN: Li et al., MICRO 2018",
       .bits = "2 to 34",
       .use = "gradients within (-1, 1) whose scale is known: the bound is absolute",
       .traits = inceptionn::Inceptionn::kTraits,
       .parameters = {inceptionn::kLog2Bound}},
      make_as<inceptionn::Inceptionn>};
}

}  // namespace crimp
#endif
