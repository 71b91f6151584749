// stoch8 on the host, an element at a time. Codecs whose time counts use Highway: codec/natural/natural_host.cpp is the
// shortest.
#include "codec/stoch8/stoch8.hpp"

#include <cmath>
#include <cstring>

#include "codec/coding/dither.hpp"
#include "codec/registry.hpp"

namespace crimp {
namespace stoch8 {
namespace {

class Stoch8 final : public Codec {
 public:
  explicit Stoch8(const SpecValues& values) : levels_(values[kLevels]) {}
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return levels_; }
  std::size_t piece_bound(std::uint64_t count) const override { return sizeof(float) + count; }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const auto a = [&](std::uint64_t i) {
      return piece.residual_in ? piece.values[i] + piece.residual_in[i] : piece.values[i];
    };  // adding 0 would lose -0
    float largest = 0;
    for (std::uint64_t i = 0; i < piece.count; ++i) largest = std::fmax(largest, std::fabs(a(i)));
    const float scale = scale_of(largest);
    const uniform::Grid grid = grid_of(scale, levels_);
    std::memcpy(bytes, &scale, sizeof scale);
    for (std::uint64_t i = 0; i < piece.count; ++i) {
      const float x = a(i);  // residual_out may be residual_in
      const std::uint32_t code =
          code_of(x, grid, dither::bits16(piece.counter, dither::kRounding, static_cast<std::uint32_t>(i)));
      bytes[sizeof scale + i] = static_cast<std::uint8_t>(code);
      if (piece.residual_out) piece.residual_out[i] = x - value_of(code, grid);
    }
    return piece_bound(piece.count);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    float scale;
    if (in.size() != piece_bound(count)) return false;
    std::memcpy(&scale, in.data(), sizeof scale);
    if (!std::isfinite(scale) || std::signbit(scale)) return false;
    in = in.subspan(sizeof scale);
    const uniform::Grid grid = grid_of(scale, levels_);
    if (!uniform::finite(grid)) return false;
    for (const std::uint8_t code : in)
      if (!legal_code(code, levels_)) return false;
    for (std::uint64_t i = 0; i < count; ++i) acc[i] += value_of(in[i], grid);
    return true;
  }

  static constexpr Traits kTraits{.name = "stoch8",
                                  .wire_id = 200,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = uniform::kMaxMagnitude,
                                  .min_magnitude = uniform::kMinMagnitude};

 private:
  std::uint32_t levels_;
};

}  // namespace
}  // namespace stoch8

CodecEntry stoch8_entry() {
  return {{.summary = "signed bytes of a piece's largest magnitude, rounded at random without bias",
           .formula = "M = max|a| of a piece, q = floor(levels a / M + u), u uniform in [0, 1), d = q M / levels",
           .source = "an example",
           .bits = "8.003",
           .use = "to see what a codec needs",
           .traits = stoch8::Stoch8::kTraits,
           .parameters = {stoch8::kLevels}},
          make_as<stoch8::Stoch8>};
}

}  // namespace crimp
