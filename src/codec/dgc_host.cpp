// DGC: Top-k behind momentum correction and momentum factor masking (the memory `momentum`).
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "backend/thread_scratch.hpp"
#include "codec/dither.hpp"
#include "codec/host_codecs.hpp"
#include "codec/select.hpp"
#include "codec/sparse.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kMostSampled = 16384;
constexpr int kCorrections = 3;

class Dgc final : public SparseCodec {
 public:
  explicit Dgc(const SpecValues& values) : SparseCodec(kTraits, values), ratio_(sparse_ratio(values)), sample_(static_cast<float>(values.number("sample", 1))) {
    if (!(sample_ > 0.0f && sample_ <= 1.0f)) values.fail("sample", "0 < sample <= 1");
  }

  Selection select(const float* values, const float* residual, std::uint64_t count, const Place& place) const override {
    const std::uint64_t k = share_of(ratio_, count);
    if (sample_ < 1.0f && k < count) {
      float t = sampled_threshold(values, residual, count, place);
      for (int i = 0; i <= kCorrections && t > 0.0f && std::isfinite(t); ++i) {
        const double sent = static_cast<double>(select::count_above(values, residual, count, t, select::Side::magnitude)), wanted = static_cast<double>(k);
        if (sent <= 1.3 * wanted && sent >= 0.7 * wanted) return {t, t, 0, 0};
        t *= sent > wanted ? 1.3f : 0.7f;
      }
    }
    const auto [threshold, ties] = select::largest(values, residual, count, k, select::Side::magnitude);
    return {threshold, threshold, ties, ties};
  }
  static constexpr Traits kTraits{.name = "dgc", .wire_id = 21, .fixed_size = false, .biased = true, .memory = MemoryKind::momentum, .max_magnitude = kSparseMagnitude, .selects = true};

 private:
  // The same rank in a sample: one element from each of S equal strata, at a place that changes with the call.
  float sampled_threshold(const float* values, const float* residual, std::uint64_t count, const Place& place) const {
    const std::uint64_t size = std::min({share_of(sample_, count), kMostSampled, count});
    const std::uint32_t shift = dither::bits16(place, dither::kRounding, 0);
    struct Room {
      float sample[kMostSampled];
    };
    float* const sample = thread_scratch_as<Room>().sample;
    for (std::uint64_t j = 0; j < size; ++j) {
      const std::uint64_t begin = j * count / size, width = (j + 1) * count / size - begin, i = begin + (width * shift >> 16);
      sample[j] = std::fabs(residual ? values[i] + residual[i] : values[i]);
    }
    const std::uint64_t rank = std::min(share_of(ratio_, size), size) - 1;
    std::nth_element(sample, sample + rank, sample + size, std::greater<>());
    return sample[rank];
  }
  float ratio_, sample_;
};

}  // namespace

CodecEntry dgc_entry() {
  return {{"dgc", "deep gradient compression: the largest magnitudes behind momentum correction with masking", "u = momentum u + g, a = v + u, d = a where |a| is among the k largest, v = a - d, u = 0 where d is not",
           "DGC: Lin et al., ICLR 2018", "as topk",
           "plain SGD with the momentum moved into the codec (memory=momentum): the optimiser's own momentum must be 0. Clipping of local gradients and the warm-up of the ratio are "
           "the program's",
           Dgc::kTraits,
           {ratio_parameter(),
            {"sample", "1", "0 < sample <= 1", "share of the elements that the threshold is taken from, as in the paper (0.001 to 0.01), corrected at most 3 times by 1.3 or 0.7, then exact; "
                                               "1: exact at once, which costs the same one pass"},
            SparseCodec::value_parameter()}},
          [](const SpecValues& v) -> std::shared_ptr<Codec> { return std::make_shared<Dgc>(v); }};
}

}  // namespace crimp
