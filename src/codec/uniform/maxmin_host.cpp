// Max-min: uniform levels between the least and the largest value of a block. WIRE_FORMAT.md, section 4.14.
#include <cmath>

#include "codec/uniform/uniform_host.hpp"

namespace crimp {
namespace uniform {
namespace {

class MaxMin final : public Blockwise<MaxMin> {
 public:
  struct Side {
    float low, step;
  };
  explicit MaxMin(const SpecValues& values) : Blockwise(values[kBlock], values[kBits], 0, values[kRounding]) {}
  std::uint32_t parameter_word() const override { return static_cast<std::uint32_t>(bits_) | block_ << 8; }

  Side measure(const Block& b, Grid* grid) const {
    const Extent e = reach(b.values, b.in, b.count);
    *grid = between(e.low, e.high, bits_);
    return {grid->base, grid->step};
  }
  static bool legal(const Side& s) {
    return std::isfinite(s.low) && s.step >= 0.0f && std::isfinite(s.step) && !std::signbit(s.step);
  }
  Grid grid(const Side& s) const { return {s.low, s.step, 0.0f, 0, (1 << bits_) - 1}; }

  static constexpr Traits kTraits{.name = "maxmin",
                                  .wire_id = 14,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxReach};
};

}  // namespace
}  // namespace uniform

CodecEntry maxmin_entry() {
  return {
      {.summary = "uniform levels between the least and the largest value of a block",
       .formula = "step = (max - min) / (2^bits - 1), q = floor((a - min) / step + u), d = min + q step",
       .source = "CGX: Markov, Ramezanikebrya, Alistarh, Middleware 2022",
       .bits = "bits and 64 / block: 4.13 by default",
       .use = "4 bits where the network is slow, 8 bits as nearly exact; with memory=residual take rounding=nearest",
       .traits = uniform::MaxMin::kTraits,
       .parameters = {uniform::kBits, uniform::kBlock, uniform::kRounding}},
      make_as<uniform::MaxMin>};
}

}  // namespace crimp
