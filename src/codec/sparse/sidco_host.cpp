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
using Dd = hn::CappedTag<double, 8>;
using Df = hn::Rebind<float, Dd>;
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

template <bool has_residual, bool with_logs>
HWY_INLINE void add_piece(const float* values, const float* residual, std::uint64_t count, float from, Lanes& sums) {
  const Dd d;
  const Df df;
  constexpr std::size_t kWidth = hn::MaxLanes(d), kVectors = kLanes / kWidth;
  const auto start = hn::Set(d, static_cast<double>(from)), zero = hn::Zero(d), one = hn::Set(d, 1.0);
  Vd excess[kVectors], squares[kVectors], logs[kVectors], n = zero;
  for (std::size_t v = 0; v < kVectors; ++v) excess[v] = squares[v] = logs[v] = zero;
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t v = 0; v < kVectors; ++v) {
      auto a = hn::LoadU(df, values + i + v * kWidth);
      if constexpr (has_residual) a = hn::Add(a, hn::LoadU(df, residual + i + v * kWidth));
      const auto x = hn::PromoteTo(d, hn::Abs(a)), y = hn::Max(hn::Sub(x, start), zero);
      const auto counted = hn::Gt(y, zero);
      excess[v] = hn::Add(excess[v], y);
      squares[v] = hn::Add(squares[v], hn::Mul(y, y));
      if constexpr (with_logs)
        logs[v] = hn::Add(logs[v], hn::IfThenElseZero(counted, LogOf(hn::IfThenElse(counted, x, one))));
      n = hn::Add(n, hn::IfThenElseZero(counted, one));
    }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::Store(excess[v], d, sums.excess + v * kWidth);
    hn::Store(squares[v], d, sums.squares + v * kWidth);
    hn::Store(logs[v], d, sums.logs + v * kWidth);
  }
  HWY_ALIGN double each[kWidth];
  hn::Store(n, d, each);
  sums.count = 0;
  for (const double lane : each) sums.count += static_cast<std::uint64_t>(lane);
  for (std::uint32_t lane = 0; i < count; ++i, ++lane) {
    const double x = std::fabs(has_residual ? values[i] + residual[i] : values[i]), y = x - static_cast<double>(from);
    if (!(y > 0.0)) continue;
    sums.excess[lane] += y;
    sums.squares[lane] += y * y;
    if constexpr (with_logs) sums.logs[lane] += log_of(x);
    ++sums.count;
  }
}

void AddPiece(const float* values, const float* residual, std::uint64_t count, float from, bool with_logs,
              Lanes& sums) {
  if (with_logs) {
    residual ? add_piece<true, true>(values, residual, count, from, sums)
             : add_piece<false, true>(values, residual, count, from, sums);
  } else {
    residual ? add_piece<true, false>(values, residual, count, from, sums)
             : add_piece<false, false>(values, residual, count, from, sums);
  }
}

}  // namespace crimp::sidco::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace sidco {
HWY_EXPORT(AddPiece);

namespace {

Moments moments(const float* values, const float* residual, std::uint64_t count, float from, bool with_logs) {
  Moments all{.from = static_cast<double>(from)};
  Lanes lanes;
  for (std::uint64_t at = 0; at < count; at += kPieceElements) {
    HWY_DYNAMIC_DISPATCH(AddPiece)
    (values + at, residual ? residual + at : nullptr, std::min(kPieceElements, count - at), from, with_logs, lanes);
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
    Moments m = moments(values, residual, count, 0.0f, tail_ == Tail::gamma);
    if (m.count <= k) return {0.0f, 0.0f, 0, 0};
    const double share = k / m.count;
    const int stages = share < kFirstShare ? stages_ : 1;
    const double first = stages > 1 ? kFirstShare : share;
    const double later = stages > 1 ? exp_of(log_of(share / kFirstShare) / (stages - 1)) : 1.0;
    float eta = static_cast<float>(tail_ == Tail::gamma ? gamma_tail(m, first) : fit(m, first));
    for (int stage = 1; legal(eta); ++stage) {
      m = moments(values, residual, count, eta, false);
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
