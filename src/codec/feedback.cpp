#include "codec/feedback.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/coding/prefetch.hpp"
#include "core/convert.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/feedback.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using D1 = hn::CappedTag<float, 1>;

// work(d, i) for every element, a vector at a time, then one by one. Written out because arrays may be the same:
// compilers then give up.
template <class Work>
HWY_INLINE void each(std::uint64_t count, Work&& work) {
  const std::uint64_t lanes = hn::Lanes(D());
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) work(D(), i);
  for (; i < count; ++i) work(D1(), i);
}

void Compensate(const FeedbackPolicy& policy, const float* values, const FeedbackView& memory, std::uint64_t count,
                float* a) {
  const float *in = memory.in, *momentum_in = memory.momentum_in;
  float *out = memory.out, *momentum_out = memory.momentum_out;
  const float decay = policy.decay, gain = memory.gain, momentum = policy.momentum, fresh = 1.0f - policy.momentum;
  if (policy.kind == FeedbackKind::residual) {
    each(count, [=](auto d, std::uint64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::Mul(hn::Set(d, gain), hn::LoadU(d, values + i)),
                         hn::Mul(hn::Set(d, decay), hn::LoadU(d, in + i))),
                 d, a + i);
    });
  } else if (policy.kind == FeedbackKind::average) {
    each(count, [=](auto d, std::uint64_t i) HWY_ATTR {
      const auto m = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, in + i)),
                             hn::Mul(hn::Set(d, fresh), hn::LoadU(d, values + i)));
      hn::StoreU(m, d, a + i);
      hn::StoreU(m, d, out + i);
    });
  } else if (policy.nesterov) {
    each(count, [=](auto d, std::uint64_t i) HWY_ATTR {
      const auto g = hn::LoadU(d, values + i),
                 u = hn::Mul(hn::Set(d, momentum), hn::Add(hn::LoadU(d, momentum_in + i), g));
      hn::StoreU(hn::Add(hn::LoadU(d, in + i), hn::Add(u, g)), d, a + i);
      hn::StoreU(u, d, momentum_out + i);
    });
  } else {
    each(count, [=](auto d, std::uint64_t i) HWY_ATTR {
      const auto u = hn::Add(hn::Mul(hn::Set(d, momentum), hn::LoadU(d, momentum_in + i)), hn::LoadU(d, values + i));
      hn::StoreU(hn::Add(hn::LoadU(d, in + i), u), d, a + i);
      hn::StoreU(u, d, momentum_out + i);
    });
  }
}

void Mask(const float* a, const float* left, std::uint64_t count, float* u) {
  each(count, [=](auto d, std::uint64_t i) HWY_ATTR {
    prefetch(left + i, kPieceElements * sizeof *left);
    prefetch(u + i, kPieceElements * sizeof *u);
    hn::StoreU(hn::IfThenElseZero(hn::Eq(hn::LoadU(d, left + i), hn::LoadU(d, a + i)), hn::LoadU(d, u + i)), d, u + i);
  });
}

}  // namespace crimp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
HWY_EXPORT(Compensate);
HWY_EXPORT(Mask);

const char* name_of(FeedbackKind kind) {
  switch (kind) {
    case FeedbackKind::none: return "none";
    case FeedbackKind::residual: return "residual";
    case FeedbackKind::momentum: return "momentum";
    case FeedbackKind::average: return "average";
  }
  return "?";
}

void compensate(const FeedbackPolicy& policy, const float* values, const FeedbackView& memory, std::uint64_t count,
                float* a) {
  HWY_DYNAMIC_DISPATCH(Compensate)(policy, values, memory, count, a);
}

void keep(const FeedbackPolicy& policy, const float* a, const FeedbackView& memory, std::uint64_t count) {
  if (policy.kind == FeedbackKind::momentum) HWY_DYNAMIC_DISPATCH(Mask)(a, memory.out, count, memory.momentum_out);
}

void forget(const std::uint64_t* changed, std::uint64_t count, float* u) {
  // Few and far between: all are asked for before any is written, because stores leave one after another.
  const auto each = [&](auto&& use) {
    for (std::uint64_t at = 0; at < count; at += 64)
      for (std::uint64_t rest = changed[at / 64]; rest; rest &= rest - 1)
        use(u + at + static_cast<std::uint64_t>(std::countr_zero(rest)));
  };
  each([](const float* at) { prefetch<3>(at, 0); });
  each([](float* at) { *at = 0.0f; });
}

}  // namespace crimp
#endif
