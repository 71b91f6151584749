#include "core/convert.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::HWY_NAMESPACE {
namespace half = crimp::half::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
using half::Bfloat, half::D16, half::Df, half::Half;
using Di = hn::RebindToSigned<Df>;

template <class Format>
void narrow16(const float* in, std::uint16_t* out, std::size_t count) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Format::encode(hn::LoadU(d, in + i)), D16(), out + i);
  for (; i < count; ++i) {  // pieces may begin at any byte
    const std::uint16_t one = Format::encode1(in[i]);
    std::memcpy(reinterpret_cast<char*>(out) + i * sizeof one, &one, sizeof one);
  }
}

template <class Format, bool add>
void widen16(const std::uint16_t* in, float* out, std::size_t count) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto v = Format::decode(hn::LoadU(D16(), in + i));
    if constexpr (add) v = hn::Add(hn::LoadU(d, out + i), v);
    hn::StoreU(v, d, out + i);
  }
  for (; i < count; ++i) {
    std::uint16_t one;
    std::memcpy(&one, reinterpret_cast<const char*>(in) + i * sizeof one, sizeof one);
    const float x = Format::decode1(one);
    out[i] = add ? out[i] + x : x;  // adding to 0 would lose -0
  }
}

void HalfNarrow(const float* in, std::uint16_t* out, std::size_t n) { narrow16<Half>(in, out, n); }
void BfloatNarrow(const float* in, std::uint16_t* out, std::size_t n) { narrow16<Bfloat>(in, out, n); }
void HalfWiden(const std::uint16_t* in, float* out, std::size_t n) { widen16<Half, false>(in, out, n); }
void BfloatWiden(const std::uint16_t* in, float* out, std::size_t n) { widen16<Bfloat, false>(in, out, n); }
void HalfAdd(const std::uint16_t* in, float* out, std::size_t n) { widen16<Half, true>(in, out, n); }
void BfloatAdd(const std::uint16_t* in, float* out, std::size_t n) { widen16<Bfloat, true>(in, out, n); }

void FloatAdd(const float* in, float* acc, std::size_t count) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, acc + i), hn::LoadU(d, in + i)), d, acc + i);
  for (; i < count; ++i) acc[i] += in[i];
}

// Largest bit pattern of |x|: order-free, and NaN and infinity are the largest of all. Two halves at once, because one
// core follows two streams of a large buffer nearly twice as fast as one (measured 18 and 36 GB/s).
std::uint32_t FloatMagnitude(const float* in, std::size_t count) {
  const Di di;
  const std::size_t lanes = hn::Lanes(di);
  const auto mask = hn::Set(di, 0x7fffffff);
  const auto* p = reinterpret_cast<const std::int32_t*>(in);
  const std::size_t half = count / 2 / (2 * lanes) * (2 * lanes);
  auto a = hn::Zero(di), b = a, c = a, e = a;
  for (std::size_t i = 0; i < half; i += 2 * lanes) {
    a = hn::Max(a, hn::And(hn::LoadU(di, p + i), mask));
    b = hn::Max(b, hn::And(hn::LoadU(di, p + i + lanes), mask));
    c = hn::Max(c, hn::And(hn::LoadU(di, p + half + i), mask));
    e = hn::Max(e, hn::And(hn::LoadU(di, p + half + i + lanes), mask));
  }
  std::int32_t top = hn::GetLane(hn::MaxOfLanes(di, hn::Max(hn::Max(a, b), hn::Max(c, e))));
  for (std::size_t i = 2 * half; i < count; ++i) {
    const std::int32_t x = p[i] & 0x7fffffff;
    top = x > top ? x : top;
  }
  return static_cast<std::uint32_t>(top);
}

}  // namespace crimp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
HWY_EXPORT(HalfNarrow);
HWY_EXPORT(BfloatNarrow);
HWY_EXPORT(HalfWiden);
HWY_EXPORT(BfloatWiden);
HWY_EXPORT(HalfAdd);
HWY_EXPORT(BfloatAdd);
HWY_EXPORT(FloatAdd);
HWY_EXPORT(FloatMagnitude);

void widen(Dtype from, const void* in, float* out, std::size_t count) {
  switch (from) {
    case Dtype::f32: std::memcpy(out, in, count * sizeof(float)); return;
    case Dtype::f16: HWY_DYNAMIC_DISPATCH(HalfWiden)(static_cast<const std::uint16_t*>(in), out, count); return;
    case Dtype::bf16: HWY_DYNAMIC_DISPATCH(BfloatWiden)(static_cast<const std::uint16_t*>(in), out, count); return;
    case Dtype::f64: {
      const auto* p = static_cast<const double*>(in);
      for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(p[i]);
    }
  }
}

void narrow(Dtype to, const float* in, void* out, std::size_t count) {
  switch (to) {
    case Dtype::f32: std::memcpy(out, in, count * sizeof(float)); return;
    case Dtype::f16: HWY_DYNAMIC_DISPATCH(HalfNarrow)(in, static_cast<std::uint16_t*>(out), count); return;
    case Dtype::bf16: HWY_DYNAMIC_DISPATCH(BfloatNarrow)(in, static_cast<std::uint16_t*>(out), count); return;
    case Dtype::f64: {
      auto* p = static_cast<double*>(out);
      for (std::size_t i = 0; i < count; ++i) p[i] = in[i];
    }
  }
}

void add_widened(Dtype from, const void* in, float* acc, std::size_t count) {
  switch (from) {
    case Dtype::f32: HWY_DYNAMIC_DISPATCH(FloatAdd)(static_cast<const float*>(in), acc, count); return;
    case Dtype::f16: HWY_DYNAMIC_DISPATCH(HalfAdd)(static_cast<const std::uint16_t*>(in), acc, count); return;
    case Dtype::bf16: HWY_DYNAMIC_DISPATCH(BfloatAdd)(static_cast<const std::uint16_t*>(in), acc, count); return;
    case Dtype::f64: {
      const auto* p = static_cast<const double*>(in);
      for (std::size_t i = 0; i < count; ++i) acc[i] += static_cast<float>(p[i]);
    }
  }
}

double magnitude(Dtype type, const void* in, std::size_t count) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (type == Dtype::f64) {
    // On bits, as for float32: NaN compares above infinity.
    const auto* p = static_cast<const std::uint64_t*>(in);
    std::uint64_t top = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t x = p[i] & 0x7fffffffffffffff;
      top = x > top ? x : top;
    }
    return top >= 0x7ff0000000000000 ? infinity : std::bit_cast<double>(top);
  }
  if (type == Dtype::f32) {
    const std::uint32_t top = HWY_DYNAMIC_DISPATCH(FloatMagnitude)(static_cast<const float*>(in), count);
    return top >= 0x7f800000 ? infinity : std::bit_cast<float>(top);
  }
  const auto* p = static_cast<const std::uint16_t*>(in);
  std::uint16_t top = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<std::uint16_t>(p[i] & 0x7fff);
    top = x > top ? x : top;
  }
  if (top >= (type == Dtype::f16 ? 0x7c00 : 0x7f80)) return infinity;
  return type == Dtype::f16 ? float_from_half(top) : float_from_bfloat(top);
}

}  // namespace crimp
#endif
