// TernGrad: the rounding of QSGD with one level, the bytes of 3LC. WIRE_FORMAT.md, section 4.6.
#include <cmath>

#include "codec/threelc/threelc.hpp"
#include "codec/uniform/uniform_host.hpp"

namespace crimp {
namespace uniform {
namespace {

// A piece is S, then base-3^5 bytes.
class TernGrad final : public Codec {
 public:
  explicit TernGrad(const SpecValues& values) : clip_(values[kDeviations]), traits_(kTraits) {
    traits_.selects = values[kScaleOf] == ScaleOf::tensor;
  }
  const Traits& traits() const override { return traits_; }
  std::size_t piece_bound(std::uint64_t count) const override { return sizeof(float) + threelc::base_bytes(count); }

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    double sum = 0, squares = 0;
    float largest = 0;
    for (std::uint64_t at = 0; at < count; at += kPieceElements) {
      const Moments m = moments(values + at, residual ? residual + at : nullptr, std::min(kPieceElements, count - at));
      sum += static_cast<double>(m.sum), squares += static_cast<double>(m.squares);
      largest = std::max(largest, m.largest);
    }
    return {.scale = clipped_peak({static_cast<float>(sum), static_cast<float>(squares), largest}, count, clip_)};
  }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const float scale = traits_.selects
                            ? piece.selection.scale
                            : clipped_peak(moments(piece.values, piece.residual_in, piece.count), piece.count, clip_);
    std::memcpy(bytes, &scale, sizeof scale);
    alignas(64) std::uint8_t digits[kPieceElements];  // codes of 8 bits are bytes in the elements' order
    const Block whole{piece.values,  piece.residual_in, piece.residual_out, piece.count, symmetric(scale, 1), 8, 1, 0,
                      kPieceElements};
    static_assert(kPieceElements % bit_pack::kTile == 0);
    encode_block(whole, piece.counter, Rounding::symmetric, digits);
    threelc::pack_digits(digits, piece.count, bytes + sizeof scale);
    return piece_bound(piece.count);
  }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    float scale;
    if (in.size() != piece_bound(count)) return false;
    std::memcpy(&scale, in.data(), sizeof scale);
    in = in.subspan(sizeof scale);
    if (!std::isfinite(scale) || std::signbit(scale) || !threelc::legal_base(in.data(), in.size())) return false;
    threelc::add_base(in.data(), count, scale, acc);
    return true;
  }

  // One encoding loses about S E|a| / sigma^2 - 1 of the energy, S at most the largest of a piece, about 6 sigma.
  double error_of_two_encodings() const override {
    return 2 + std::max(0.0, 0.75 * std::min(static_cast<double>(clip_), 6.0) - 1);
  }

  static constexpr Traits kTraits{.name = "terngrad",
                                  .wire_id = 6,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = kMaxMagnitude,
                                  .min_magnitude = kMinMagnitude,
                                  .diverges_with_residual = true};

 private:
  float clip_;
  Traits traits_;
};

}  // namespace
}  // namespace uniform

CodecEntry terngrad_entry() {
  return {
      {.summary = "ternary without bias, clipped, five values a byte",
       .formula =
           "S = min(max|a|, clip * max(sigma, |mean|)) of a piece (scale=tensor: of a tensor), d = S sign(a) with probability min(|a| / S, 1), else 0",
       .source = "TernGrad: Wen et al., NeurIPS 2017",
       .bits = "1.6",
       .use =
           "unbiased but for what is clipped, and without memory, at the price of much noise; not for gradients that are mostly zeros, whose few values lie beyond clip * sigma and lose most of their size",
       .traits = uniform::TernGrad::kTraits,
       .parameters = {uniform::kDeviations, kScaleOf}},
      make_as<uniform::TernGrad>};
}

}  // namespace crimp
