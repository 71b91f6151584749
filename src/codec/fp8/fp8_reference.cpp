// 8-bit floats with block scales, written from WIRE_FORMAT.md, section 4.15, alone: the nearest of all values, by
// comparison.
#include <algorithm>
#include <cmath>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Fp8 final : public ReferenceCodec {
 public:
  explicit Fp8(const std::string& spec) : block_(std::stoul(parameter(spec, "block"))) {
    const bool e4m3 = parameter(spec, "format") == "e4m3";
    const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    top_ = e4m3 ? 448 : 57344;
    most_ = e4m3 ? 232 : 225;
    for (int code = 0; code < 128; ++code) {
      const int e = code >> mantissa, m = code & ((1 << mantissa) - 1);
      const double value = std::ldexp(e ? 1 + std::ldexp(m, -mantissa) : std::ldexp(m, -mantissa), (e ? e : 1) - bias);
      if (value <= top_) values_.push_back(value);
    }
  }
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes scales, codes;
    for (std::size_t at = 0; at < p.a.size(); at += block_) {
      const auto block = p.a.subspan(at, std::min(block_, p.a.size() - at));
      const int k = exponent_of(block);
      scales.push_back(static_cast<std::uint8_t>(k));
      for (const float x : block)
        codes.push_back(
            static_cast<std::uint8_t>((std::signbit(x) ? 128 : 0) +
                                      (k ? nearest(std::fabs(static_cast<double>(x)) * std::ldexp(1.0, 127 - k)) : 0)));
    }
    scales.insert(scales.end(), codes.begin(), codes.end());
    return scales;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> values;
    const std::size_t scales = (count + block_ - 1) / block_;
    for (std::size_t i = 0; i < count; ++i) {
      const int code = piece[scales + i], k = piece[i / block_];
      const auto size =
          static_cast<float>(k ? values_.at(static_cast<std::size_t>(code % 128)) * std::ldexp(1.0, k - 127) : 0);
      values.push_back(code >= 128 ? -size : size);
    }
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_block(a, block_, [&](std::span<const float> block) {
      const int k = exponent_of(block);
      const double scale = std::ldexp(1.0, k - 127);
      return [this, k, scale](double x) {
        return k ? std::max(std::fabs(x) / (top_ > 448 ? 8 : 16), scale * values_[1] / 2) : 0x1p-100;
      };
    });
  }

 private:
  // The scale byte.
  int exponent_of(std::span<const float> block) const {
    double peak = 0;
    for (const float x : block) peak = std::max(peak, std::fabs(static_cast<double>(x)));
    if (peak < 0x1p-100) return 0;
    int k = 1;
    while (k < most_ && peak > top_ * std::ldexp(1.0, k - 127)) ++k;
    return k;
  }
  int nearest(double x) const {
    if (x >= top_) return static_cast<int>(values_.size() - 1);
    const auto above = std::lower_bound(values_.begin(), values_.end(), x) - values_.begin();
    if (above == 0) return 0;
    const double up = values_[static_cast<std::size_t>(above)] - x,
                 down = x - values_[static_cast<std::size_t>(above - 1)];
    if (up == down) return static_cast<int>(above % 2 ? above - 1 : above);
    return static_cast<int>(up < down ? above : above - 1);
  }
  std::size_t block_;
  double top_;
  int most_;                    // of the scale bytes
  std::vector<double> values_;  // of the codes without sign
};

}  // namespace

std::unique_ptr<const ReferenceCodec> fp8_reference(const std::string& spec) {
  if (codec_of(spec) != "fp8") return nullptr;
  return std::make_unique<Fp8>(spec);
}

}  // namespace crimp::test
