#include "memory/streamed.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/streamed.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Streamed(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, std::uint64_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint64_t i = 0;
  while (i < count && reinterpret_cast<std::uintptr_t>(to + i) % (lanes * sizeof *to)) to[i] = from[i], ++i;
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

}  // namespace crimp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {

HWY_EXPORT(Streamed);

void streamed_copy(float* to, const float* from, std::uint64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Streamed)(to, from, count);
}
void end_streamed() noexcept { hwy::FlushStream(); }

}  // namespace crimp
#endif
