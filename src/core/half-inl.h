// float16 and bfloat16, a vector at a time, on every target with the bits of core/half.hpp. Included once per SIMD
// target.
#if defined(CRIMP_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_HALF_INL_H_
#undef CRIMP_HALF_INL_H_
#else
#define CRIMP_HALF_INL_H_
#endif
#include <hwy/highway.h>

#include <cstdint>

#include "core/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace crimp::half::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Du = hn::RebindToUnsigned<Df>;
using Di = hn::RebindToSigned<Df>;
using D16 = hn::Rebind<std::uint16_t, Df>;
using Vf = hn::Vec<Df>;
using V16 = hn::Vec<D16>;

struct Half {
  HWY_INLINE static V16 encode(Vf x) {
#if HWY_TARGET <= HWY_AVX2
    return hn::BitCast(D16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, Df>(), x));
#else
    const Du du;
    const auto bits = hn::BitCast(du, x);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
    const auto u = hn::And(bits, hn::Set(du, 0x7fffffff));
    const auto i = hn::BitCast(Di(), u);  // non-negative, so signed comparison is right
    const auto odd = hn::And(hn::ShiftRight<13>(u), hn::Set(du, 1));
    auto r = hn::ShiftRight<13>(hn::Add(hn::Add(u, hn::Set(du, 0xc8000fffu)), odd));
    const auto shifted = hn::BitCast(du, hn::Add(hn::BitCast(Df(), u), hn::Set(Df(), 0.5f)));
    const auto tiny = hn::RebindMask(du, hn::Lt(i, hn::Set(Di(), 0x38800000)));
    r = hn::IfThenElse(tiny, hn::Sub(shifted, hn::Set(du, 0x3f000000)), r);
    const auto big = hn::RebindMask(du, hn::Gt(i, hn::Set(Di(), 0x477fffff)));
    r = hn::IfThenElse(big, hn::Set(du, 0x7c00), r);
    const auto nan = hn::RebindMask(du, hn::Gt(i, hn::Set(Di(), 0x7f800000)));
    r = hn::IfThenElse(nan, hn::Or(hn::Set(du, 0x7e00), hn::And(hn::ShiftRight<13>(u), hn::Set(du, 0x3ff))), r);
    return hn::DemoteTo(D16(), hn::BitCast(Di(), hn::Or(r, sign)));
#endif
  }
  HWY_INLINE static Vf decode(V16 h) {
#if HWY_TARGET <= HWY_AVX2
    return hn::PromoteTo(Df(), hn::BitCast(hn::Rebind<hwy::float16_t, Df>(), h));
#else
    const Du du;
    const auto wide = hn::PromoteTo(du, h);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000)));
    const auto u = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fff)));
    const auto exponent = hn::And(u, hn::Set(du, 0x0f800000));
    const auto normal = hn::Add(u, hn::Set(du, 112u << 23));
    auto special = hn::Add(normal, hn::Set(du, 112u << 23));
    const auto mantissa = hn::And(special, hn::Set(du, 0x007fffff));
    special = hn::IfThenElse(hn::Eq(mantissa, hn::Zero(du)), special, hn::Or(special, hn::Set(du, 0x00400000)));
    const auto tiny = hn::BitCast(du, hn::Sub(hn::BitCast(Df(), hn::Add(normal, hn::Set(du, 1u << 23))),
                                              hn::BitCast(Df(), hn::Set(du, 113u << 23))));
    auto r = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x0f800000)), special, normal);
    r = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), tiny, r);
    return hn::BitCast(Df(), hn::Or(r, sign));
#endif
  }
  static std::uint16_t encode1(float x) { return half_from_float(x); }
  static float decode1(std::uint16_t h) { return float_from_half(h); }
};

struct Bfloat {
  HWY_INLINE static V16 encode(Vf x) {
    const Du du;
    const auto u = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(u, hn::Set(du, 0x7fff)), odd));
    const auto abs = hn::BitCast(Di(), hn::And(u, hn::Set(du, 0x7fffffff)));
    const auto nan = hn::RebindMask(du, hn::Gt(abs, hn::Set(Di(), 0x7f800000)));
    const auto r = hn::IfThenElse(nan, hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40)), rounded);
    return hn::DemoteTo(D16(), hn::BitCast(Di(), r));
  }
  HWY_INLINE static Vf decode(V16 b) { return hn::BitCast(Df(), hn::ShiftLeft<16>(hn::PromoteTo(Du(), b))); }
  static std::uint16_t encode1(float x) { return bfloat_from_float(x); }
  static float decode1(std::uint16_t b) { return float_from_bfloat(b); }
};

}  // namespace crimp::half::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
