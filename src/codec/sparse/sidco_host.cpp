#include "codec/sparse/sidco.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/select.hpp"
#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sparse/sidco_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef CRIMP_SIDCO_ONCE
#define CRIMP_SIDCO_ONCE
namespace crimp::sidco {

// The 32 sums of a piece, and how they become one.
struct Lanes {
  alignas(64) double excess[kLanes], squares[kLanes], logs[kLanes];
  std::uint64_t count;
};
// Of the magnitudes above `from`, of which few are expected or many; logs: squares, too.
struct Wanted {
  float from = 0;
  bool squares = false, logs = false, few = false;
};
constexpr double kFew = 0.05;  // of all elements
inline double tree(double* lanes) {
  for (std::uint32_t half = kLanes / 2; half; half /= 2)
    for (std::uint32_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

}  // namespace crimp::sidco
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::sidco::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Dd = hn::Repartition<double, Df>;
using Vf = hn::Vec<Df>;
using Vd = hn::Vec<Dd>;

// log_of, the same operations in the same order.
HWY_INLINE Vd LogOf(Vd x) {
  const Dd d;
  const hn::RebindToSigned<Dd> di;
  const auto bits = hn::BitCast(di, x);
  auto e = hn::ConvertTo(d, hn::Sub(hn::ShiftRight<52>(bits), hn::Set(di, 1023)));
  auto m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0xfffffffffffff)), hn::Set(di, 0x3ff0000000000000)));
  const auto one = hn::Set(d, 1.0), big = hn::VecFromMask(d, hn::Gt(m, hn::Set(d, 0x1.6a09e667f3bcdp0)));
  m = hn::IfVecThenElse(big, hn::Mul(m, hn::Set(d, 0.5)), m);
  e = hn::Add(e, hn::And(big, one));
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), z = hn::Mul(s, s);
  auto p = hn::Set(d, 1.0 / 21);
  for (int odd = 19; odd >= 3; odd -= 2) p = hn::Add(hn::Mul(p, z), hn::Set(d, 1.0 / odd));
  return hn::Add(hn::Mul(e, hn::Set(d, kLn2)), hn::Mul(hn::Set(d, 2.0), hn::Add(s, hn::Mul(s, hn::Mul(z, p)))));
}

// few: most rows have nothing above `from`, and those are passed over. Adding zeros would give the same sums.
// all: above 0, so that nothing is subtracted.
template <bool has_residual, bool with_squares, bool with_logs, bool few, bool all = false>
HWY_INLINE void add_piece(const float* values, const float* residual, std::uint64_t count, float from, Lanes& sums) {
  const Df df;
  const Dd d;
  const hn::Half<Df> half;
  constexpr std::size_t kFloats = hn::MaxLanes(df), kWidth = hn::MaxLanes(d), kVectors = kLanes / kWidth;
  const Vf least = hn::Set(df, from);
  const Vd start = hn::Set(d, static_cast<double>(from)), zero = hn::Zero(d), one = hn::Set(d, 1.0);
  Vd excess[kVectors], squares[kVectors], logs[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) excess[v] = squares[v] = logs[v] = zero;
  const auto add = [&](std::size_t v, Vd x) HWY_ATTR {
    const Vd y = all ? x : hn::Max(hn::Sub(x, start), zero);
    excess[v] = hn::Add(excess[v], y);
    if constexpr (with_squares) squares[v] = hn::Add(squares[v], hn::Mul(y, y));
    if constexpr (with_logs) {
      const auto counted = hn::Gt(y, zero);
      logs[v] = hn::Add(logs[v], hn::IfThenElseZero(counted, LogOf(hn::IfThenElse(counted, x, one))));
    }
  };
  std::uint64_t i = 0, counted = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vf a[kLanes / kFloats], top = hn::Zero(df);
    for (std::size_t j = 0; j < kLanes / kFloats; ++j) {
      a[j] = hn::LoadU(df, values + i + j * kFloats);
      if constexpr (has_residual) a[j] = hn::Add(a[j], hn::LoadU(df, residual + i + j * kFloats));
      a[j] = hn::Abs(a[j]);
      if constexpr (few) top = hn::Max(top, a[j]);
    }
    if (few && __builtin_expect(hn::AllFalse(df, hn::Gt(top, least)), 1)) continue;
    for (std::size_t j = 0; j < kLanes / kFloats; ++j) {
      counted += hn::CountTrue(df, hn::Gt(a[j], least));
      add(j * kFloats / kWidth, hn::PromoteTo(d, hn::LowerHalf(half, a[j])));
      add(j * kFloats / kWidth + 1, hn::PromoteTo(d, hn::UpperHalf(half, a[j])));
    }
  }
  sums.count = counted;
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(excess[v], d, sums.excess + v * kWidth);
    hn::Store(squares[v], d, sums.squares + v * kWidth);
    hn::Store(logs[v], d, sums.logs + v * kWidth);
  }
  for (std::uint32_t lane = 0; i < count; ++i, ++lane) {
    const double x = std::fabs(has_residual ? values[i] + residual[i] : values[i]), y = x - static_cast<double>(from);
    if (!(y > 0.0)) continue;
    sums.excess[lane] += y;
    if constexpr (with_squares) sums.squares[lane] += y * y;
    if constexpr (with_logs) sums.logs[lane] += log_of(x);
    ++sums.count;
  }
}

template <bool has_residual>
HWY_INLINE void add_piece(const float* values, const float* residual, std::uint64_t count, const Wanted& wanted,
                          Lanes& sums) {
  if (wanted.logs) return add_piece<has_residual, true, true, false>(values, residual, count, wanted.from, sums);
  if (wanted.squares && wanted.few)
    return add_piece<has_residual, true, false, true>(values, residual, count, wanted.from, sums);
  if (wanted.squares) return add_piece<has_residual, true, false, false>(values, residual, count, wanted.from, sums);
  if (wanted.few) return add_piece<has_residual, false, false, true>(values, residual, count, wanted.from, sums);
  if (wanted.from == 0.0f) return add_piece<has_residual, false, false, false, true>(values, residual, count, 0, sums);
  add_piece<has_residual, false, false, false>(values, residual, count, wanted.from, sums);
}

void AddPiece(const float* values, const float* residual, std::uint64_t count, const Wanted& wanted, Lanes& sums) {
  if (residual) add_piece<true>(values, residual, count, wanted, sums);
  else add_piece<false>(values, residual, count, wanted, sums);
}

}  // namespace crimp::sidco::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace sidco {
HWY_EXPORT(AddPiece);

namespace {

Moments moments(const float* values, const float* residual, std::uint64_t count, const Wanted& wanted) {
  Moments all{.from = static_cast<double>(wanted.from)};
  Lanes lanes;
  for (std::uint64_t at = 0; at < count; at += kPieceElements) {
    HWY_DYNAMIC_DISPATCH(AddPiece)
    (values + at, residual ? residual + at : nullptr, std::min(kPieceElements, count - at), wanted, lanes);
    all.count += static_cast<double>(lanes.count);
    all.excess += tree(lanes.excess);
    all.squares += tree(lanes.squares);
    all.logs += tree(lanes.logs);
  }
  return all;
}

}  // namespace

class Sidco final : public SparseCodec {
 public:
  using Tail = sparse::Tail;

  explicit Sidco(const SpecValues& values)
      : SparseCodec(kTraits, values), ratio_(values[sparse::kRatio]), tail_(values[sparse::kTail]),
        stages_(values[sparse::kStages]) {}

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    const std::uint64_t wanted = share_of(ratio_, count);
    const auto k = static_cast<double>(wanted);
    // All shares are of the elements that are not zero: sparse gradients have few of them.
    const bool squares = tail_ != Tail::exponential;
    Moments m = moments(values, residual, count, {.squares = squares, .logs = tail_ == Tail::gamma});
    if (m.count <= k) return {0.0f, 0.0f, 0, 0};
    const double share = k / m.count;
    const int stages = share < kFirstShare ? stages_ : 1;
    const double first = stages > 1 ? kFirstShare : share;
    const double later = stages > 1 ? exp_of(log_of(share / kFirstShare) / (stages - 1)) : 1.0;
    float eta = static_cast<float>(tail_ == Tail::gamma ? gamma_tail(m, first) : fit(m, first));
    for (int stage = 1; legal(eta); ++stage) {
      const double expected = stage < stages ? kFirstShare * m.count : k;  // at most: later stages keep less
      m = moments(values, residual, count,
                  {.from = eta, .squares = squares, .few = expected < kFew * static_cast<double>(count)});
      if (m.count == 0) break;
      if (stage < stages) {
        eta = static_cast<float>(fit(m, later));
      } else if (m.count >= 0.8 * k && m.count <= 1.2 * k) {
        return {eta, eta, 0, 0};
      } else if (stage == stages) {  // once more, from what was reached, along an exponential tail
        eta = static_cast<float>(exponential_tail(m, k / m.count));
      } else {
        if (m.count >= 0.5 * k && m.count <= 2 * k) return {eta, eta, 0, 0};
        break;
      }
    }
    const auto [threshold, ties] = select::largest(values, residual, count, wanted, select::Side::magnitude);
    return {threshold, threshold, ties, ties};
  }

  static constexpr Traits kTraits{.name = "sidco",
                                  .wire_id = 22,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kSparseMagnitude,
                                  .min_magnitude = 0.0f,
                                  .selects = true};

 private:
  double fit(const Moments& m, double rho) const {
    return tail_ == Tail::exponential ? exponential_tail(m, rho) : pareto_tail(m, rho);
  }
  static bool legal(float eta) { return eta > 0.0f && std::isfinite(eta); }

  float ratio_;
  Tail tail_;
  int stages_;
};

}  // namespace sidco

CodecEntry sidco_entry() {
  return {
      {.summary = "the largest magnitudes of a tensor, about, by a threshold from a fitted distribution in stages",
       .formula = "d = a where |a| > eta, else 0; eta: the tail fit's quantile for the share `ratio`",
       .source = "SIDCo: Abdelmoniem et al., MLSys 2021",
       .bits = "as topk, up to twice or half of it",
       .use =
           "as topk. The paper's controller, which changes the stages over calls by how far they have missed, is left out: within the call an estimate that misses by more than 20 % is "
           "refined once, and replaced by the exact selection where it then misses by more than 2",
       .traits = sidco::Sidco::kTraits,
       .parameters = {sparse::kRatio, sparse::kTail, sparse::kStages, sparse::kValue}},
      make_as<sidco::Sidco>};
}

}  // namespace crimp
#endif
