// stoch8, written from format.md alone.
#include <cmath>
#include <cstring>

#include "support/philox_bits.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Stoch8 final : public ReferenceCodec {
 public:
  explicit Stoch8(const std::string& spec) : levels_(std::stof(parameter(spec, "levels"))) {}
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    const float m = largest(p.a);
    Bytes bytes(4);
    std::memcpy(bytes.data(), &m, 4);
    for (std::size_t i = 0; i < p.a.size(); ++i) {
      const float fixed = m > 0 ? std::nearbyint(p.a[i] * (levels_ * 65536 / m)) : 0;
      const double cut = std::fmin(std::fmax(static_cast<double>(fixed), -65536.0 * static_cast<double>(levels_)),
                                   65536.0 * static_cast<double>(levels_));
      const double q = std::floor((cut + rounding_bits(p.counter, static_cast<std::uint32_t>(i))) / 65536);
      bytes.push_back(static_cast<std::uint8_t>(q + 128));
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    float m;
    std::memcpy(&m, piece.data(), 4);
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i)
      values.push_back(0.0f + static_cast<float>(piece[4 + i] - 128) * (m / levels_));
    return values;
  }
  // A level, the 16 bits of the draw and what float32 rounds. Below 2^-60 everything is sent as 0.
  std::vector<double> allowed(std::span<const float> a) const override {
    const auto m = static_cast<double>(largest(a)), levels = static_cast<double>(levels_);
    return std::vector<double>(a.size(), m > 0 ? m / levels * (1 + 0x1p-15 + levels * 0x1p-22) : 0x1p-60);
  }

 private:
  static float largest(std::span<const float> a) {
    float m = 0;
    for (const float x : a) m = std::fmax(m, std::fabs(x));
    return m < 0x1p-60f ? 0 : m;
  }
  float levels_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> stoch8_reference(const std::string& spec) {
  if (codec_of(spec) != "stoch8") return nullptr;
  return std::make_unique<Stoch8>(spec);
}

}  // namespace crimp::test
