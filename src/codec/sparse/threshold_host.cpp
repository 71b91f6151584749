// Threshold-v: what is beyond a fixed magnitude.
#include <cmath>

#include "codec/host_codecs.hpp"
#include "codec/sparse/sparse.hpp"

namespace crimp {
namespace {

class Threshold final : public SparseCodec {
 public:
  explicit Threshold(const SpecValues& values) : SparseCodec(kTraits, values), limit_(static_cast<float>(values.number("v", 0.01))) {
    if (!(limit_ >= 0.0f && std::isfinite(limit_))) values.fail("v", "0 <= v < 3.4e38");
  }
  Selection select(const float*, const float*, std::uint64_t, const Place&) const override { return {limit_, limit_, 0, 0}; }
  static constexpr Traits kTraits{.name = "threshold", .wire_id = 20, .fixed_size = false, .biased = true, .memory = MemoryKind::residual, .max_magnitude = kSparseMagnitude, .selects = true};

 private:
  float limit_;
};

}  // namespace

CodecEntry threshold_entry() {
  return {{"threshold", "all elements whose magnitude is above a fixed value", "d = a where |a| > v, else 0", "Dutta et al., AAAI 2020; GRACE's Threshold-v", "32 p + the lesser of 1 and about 9 p, p: share that is above v; never above 33",
           "where the scale of the gradients is known; v decides what is sent, so sizes vary",
           Threshold::kTraits, {{"v", "0.01", "0 <= v < 3.4e38", "elements with |a| > v are sent; the others wait in the memory"}, SparseCodec::value_parameter()}},
          [](const SpecValues& v) -> std::shared_ptr<Codec> { return std::make_shared<Threshold>(v); }};
}

}  // namespace crimp
