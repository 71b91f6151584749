// Top-k: the k elements of the largest magnitude of a group, exactly, or about by the threshold of an earlier call.
#include <algorithm>
#include <cmath>

#include "codec/coding/select.hpp"
#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"

namespace crimp {
namespace {

constexpr auto kMagnitude = select::Side::magnitude;

class TopK final : public SparseCodec {
 public:
  explicit TopK(const SpecValues& values)
      : SparseCodec(kTraits, values), ratio_(values[sparse::kRatio]),
        reuse_(static_cast<float>(values[sparse::kReuse])) {
    if (reuse_ > 1 && !values.feedback(kTraits).kept())
      values.refuse(sparse::kReuse, "1 with memory=none: a threshold is kept where the memory is");
  }
  bool keeps_state() const override { return reuse_ > 1; }

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    const auto [threshold, ties] = select::largest(values, residual, count, share_of(ratio_, count), kMagnitude);
    return {threshold, threshold, ties, ties};
  }

  // The state: the k-th largest magnitude when it was last looked for, and the calls that may still use it. It is used
  // where from k/2 to 2k elements reach it.
  Selection select_again(const float* values, const float* residual, std::uint64_t count, const RandomCounter& counter,
                         const float* state, float* next) const override {
    const float threshold = state[0], left = state[1];
    if (left >= 1.0f && threshold > 0.0f) {
      const std::uint64_t k = share_of(ratio_, count);
      const float below = select::before(threshold);
      const std::uint64_t share = count <= topk::kWhole ? 1 : std::min(k / topk::kExpected, topk::kSmallestSample);
      const std::uint64_t sent = share < 2 ? select::count_above(values, residual, count, below, kMagnitude)
                                           : select::estimate_above(values, residual, count, below, kMagnitude, share);
      if (2 * sent >= k && sent <= 2 * k) {
        next[0] = threshold;
        next[1] = left - 1.0f;
        return {below, below, 0, 0};
      }
    }
    const Selection exact = select(values, residual, count, counter);
    next[0] = exact.up;
    next[1] = reuse_ - 1.0f;
    return exact;
  }
  static constexpr Traits kTraits{.name = "topk",
                                  .wire_id = 18,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kSparseMagnitude,
                                  .min_magnitude = 0.0f,
                                  .selects = true};

 private:
  float ratio_, reuse_;
};

}  // namespace

CodecEntry topk_entry() {
  return {
      {.summary = "the k largest magnitudes of a tensor, exactly, as values and gaps between them",
       .formula = "d = a where |a| is among the k largest (equal ones: lowest index first), else 0",
       .source =
           "Aji and Heafield, EMNLP 2017; error feedback: Stich et al., NeurIPS 2018; reuse: Ok-Topk, Li and Hoefler, PPoPP 2022",
       .bits = "0.41 at ratio 0.01 (0.25 with f16), 4.0 at 0.1",
       .use = "slow networks and few ranks: payloads of all ranks add up",
       .traits = TopK::kTraits,
       .parameters = {sparse::kRatio, sparse::kValue, sparse::kReuse}},
      make_as<TopK>};
}

}  // namespace crimp
