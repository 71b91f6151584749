// Threshold-v: what is beyond a fixed magnitude.
#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"

namespace crimp {
namespace {

class Threshold final : public SparseCodec {
 public:
  explicit Threshold(const SpecValues& values) : SparseCodec(kTraits, values), limit_(values[sparse::kLimit]) {}
  Selection select(const float*, const float*, std::uint64_t, const RandomCounter&) const override {
    return {limit_, limit_, 0, 0};
  }
  static constexpr Traits kTraits{.name = "threshold",
                                  .wire_id = 20,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kSparseMagnitude,
                                  .min_magnitude = 0.0f,
                                  .selects = true};

 private:
  float limit_;
};

}  // namespace

CodecEntry threshold_entry() {
  return {{.summary = "all elements whose magnitude is above a fixed value",
           .formula = "d = a where |a| > v, else 0",
           .source = "Dutta et al., AAAI 2020; GRACE's Threshold-v",
           .bits = "32 p + the lesser of 1 and about 9 p, p: share that is above v; never above 33",
           .use = "where the scale of the gradients is known; v decides what is sent, so sizes vary",
           .traits = Threshold::kTraits,
           .parameters = {sparse::kLimit, sparse::kValue}},
          make_as<Threshold>};
}

}  // namespace crimp
