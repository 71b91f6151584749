#include "codec/coding/largest.hpp"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/coding/largest.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;

// Magnitudes have the order of their bits, and integers are compared in fewer cycles.
float LargestMagnitude(const float* values, const float* residual, std::uint64_t count) {
  const Df d;
  const Di di;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(di), b = a;
  std::uint64_t i = 0;
  const auto bits = [&](std::uint64_t at) HWY_ATTR {
    auto v = hn::LoadU(d, values + at);
    if (residual) v = hn::Add(v, hn::LoadU(d, residual + at));
    return hn::BitCast(di, hn::Abs(v));
  };
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = hn::Max(a, bits(i));
    b = hn::Max(b, bits(i + lanes));
  }
  float top = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, hn::Max(a, b))));
  for (; i < count; ++i) {
    const float x = std::fabs(residual ? values[i] + residual[i] : values[i]);
    top = x > top ? x : top;
  }
  return top;
}

}  // namespace crimp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
HWY_EXPORT(LargestMagnitude);
float largest_magnitude(const float* values, const float* residual, std::uint64_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestMagnitude)(values, residual, count);
}
}  // namespace crimp
#endif
