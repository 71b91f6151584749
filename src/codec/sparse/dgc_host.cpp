// DGC: Top-k behind momentum correction and momentum factor masking (the memory `momentum`).
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "codec/coding/dither.hpp"
#include "codec/coding/select.hpp"
#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kMostSampled = 16384;
constexpr int kCorrections = 3;
constexpr std::uint64_t kStages =
    4;  // of a warm-up: 25, 6.25, 1.5625 and 0.390625 % (section 3.4: 75, 93.75, 98.4375 and 99.6 % are not sent)

class Dgc final : public SparseCodec {
 public:
  explicit Dgc(const SpecValues& values)
      : SparseCodec(kTraits, values), ratio_(values[sparse::kRatio]), sample_(values[sparse::kSample]),
        warmup_(values[sparse::kWarmup]) {}

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter& counter) const override {
    return select_in_turn(values, residual, count, counter, counter.step);
  }

  Selection select_in_turn(const float* values, const float* residual, std::uint64_t count,
                           const RandomCounter& counter, std::uint32_t turn) const override {
    const float ratio = ratio_in(turn);
    const std::uint64_t k = share_of(ratio, count);
    if (sample_ < 1.0f && k < count) {
      float t = sampled_threshold(ratio, values, residual, count, counter);
      for (int i = 0; i <= kCorrections && t > 0.0f && std::isfinite(t); ++i) {
        const double sent =
                         static_cast<double>(select::count_above(values, residual, count, t, select::Side::magnitude)),
                     wanted = static_cast<double>(k);
        if (sent <= 1.3 * wanted && sent >= 0.7 * wanted) return {t, t, 0, 0};
        t *= sent > wanted ? 1.3f : 0.7f;
      }
    }
    const auto [threshold, ties] = select::largest(values, residual, count, k, select::Side::magnitude);
    return {threshold, threshold, ties, ties};
  }
  static constexpr Traits kTraits{.name = "dgc",
                                  .wire_id = 21,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::momentum,
                                  .max_magnitude = kSparseMagnitude,
                                  .min_magnitude = 0.0f,
                                  .selects = true};

 private:
  // The same rank in a sample: one element from each of S equal strata, at a place that changes with the call.
  float sampled_threshold(float ratio, const float* values, const float* residual, std::uint64_t count,
                          const RandomCounter& counter) const {
    const std::uint64_t size = std::min({share_of(sample_, count), kMostSampled, count});
    const std::uint32_t shift = dither::bits16(counter, dither::kRounding, 0);
    struct Scratch {
      float sample[kMostSampled];
    };
    float* const sample = thread_scratch_as<Scratch>().sample;
    for (std::uint64_t j = 0; j < size; ++j) {
      const std::uint64_t begin = j * count / size, width = (j + 1) * count / size - begin,
                          i = begin + (width * shift >> 16);
      sample[j] = std::fabs(residual ? values[i] + residual[i] : values[i]);
    }
    const std::uint64_t rank = std::min(share_of(ratio, size), size) - 1;
    std::nth_element(sample, sample + rank, sample + size, std::greater<>());
    return sample[rank];
  }
  float ratio_in(std::uint64_t turn) const {
    if (turn >= warmup_) return ratio_;
    return std::max(ratio_, std::ldexp(0.25f, -2 * static_cast<int>(kStages * turn / warmup_)));
  }
  float ratio_, sample_;
  std::uint64_t warmup_;  // turns
};

}  // namespace

CodecEntry dgc_entry() {
  return {
      {.summary = "deep gradient compression: the largest magnitudes behind momentum correction with masking",
       .formula =
           "u = momentum u + g, a = v + u, d = a where |a| is among the k largest, v = a - d, u = 0 where something was sent",
       .source = "DGC: Lin et al., ICLR 2018",
       .bits = "as topk",
       .use =
           "plain SGD with the momentum moved into the codec (memory=momentum): the optimiser's own momentum must be 0. Tensors that rules sum exactly have it too unless these say none:memory=none, as metrics with a name need; so have calls "
           "of fewer than CRIMP_MIN_COUNT elements that name their tensors; calls whose tensors are not known have none, nor has a communicator of one rank. With memory=none a warm-up begins anew after 2^32 calls",
       .traits = Dgc::kTraits,
       .parameters = {sparse::kRatio, sparse::kSample, sparse::kWarmup, kClip, sparse::kValue}},
      make_as<Dgc>};
}

}  // namespace crimp
