// QSGD: uniform levels of a block's norm. WIRE_FORMAT.md, section 4.5.
#include <cmath>

#include "codec/uniform/uniform_host.hpp"

namespace crimp {
namespace uniform {
namespace {

class Qsgd final : public Blockwise<Qsgd> {
 public:
  using Side = float;
  explicit Qsgd(const SpecValues& values)
      : Blockwise(values[kBucket], static_cast<int>(code_bits(values[kLevels])), values[kLevels], Rounding::symmetric),
        s_(values[kLevels]) {}
  std::uint32_t parameter_word() const override { return static_cast<std::uint32_t>(s_) | block_ << 16; }

  Side measure(const Block& b, Grid* grid) const {
    const float norm = norm_of(squares(b.values, b.in, b.count));
    *grid = symmetric(norm, s_);
    return norm;
  }
  static bool legal(float norm) { return std::isfinite(norm) && !std::signbit(norm); }
  Grid grid(float norm) const { return symmetric(norm, s_); }

  // What one encoding loses of the energy: values between many levels lie anywhere, and between few next to 0.
  double error_of_two_encodings() const override {
    const double n = block_, s = s_;
    return 2 + std::min(n / (6 * s * s), std::sqrt(n / 2) / s);
  }

  static constexpr Traits kTraits{.name = "qsgd",
                                  .wire_id = 5,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxMagnitude,
                                  .min_magnitude = kMinMagnitude,
                                  .diverges_with_residual = true};

 private:
  int s_;
};

}  // namespace
}  // namespace uniform

CodecEntry qsgd_entry() {
  return {{.summary = "uniform levels of a block's L2 norm, rounded at random without bias",
           .formula = "n = |a|_2 of a block, q = floor(s a / n + u), u uniform in [0, 1), d = q n / s",
           .source = "QSGD: Alistarh et al., NeurIPS 2017",
           .bits = "ceil(log2(2 s + 1)) and 32 / bucket: 8.06 by default",
           .use = "unbiased and without memory; s = 7 (4 bits) or 127 (8 bits) fill their bits",
           .traits = uniform::Qsgd::kTraits,
           .parameters = {uniform::kLevels, uniform::kBucket}},
          make_as<uniform::Qsgd>};
}

}  // namespace crimp
