#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

class EightBit final : public ReferenceCodec {
 public:
  explicit EightBit(bool tensor) : tensor_(tensor) {}
  Selection select(std::span<const float> group, const RandomCounter&) const override {
    return {.scale = scale(group)};
  }
  bool fixed_size() const override { return true; }

  Bytes encode(const ReferencePiece& p) const override {
    const float m = tensor_ ? p.selection.scale : scale(p.a), inverse = m > 0 ? 1.0f / m : 0.0f;
    Bytes bytes(4);
    std::memcpy(bytes.data(), &m, 4);
    for (const float a : p.a) {
      const float x = std::fabs(a) * inverse;
      float y = 127;
      for (int e = 0; e < 7; ++e) {
        const float product = static_cast<float>(640 * std::pow(5, e) / 9) * x;
        y = std::min(y, product + static_cast<float>(512 / (9 * std::pow(2, e))));
      }
      bytes.push_back(static_cast<std::uint8_t>(static_cast<int>(y) + (std::signbit(a) ? 128 : 0)));
    }
    return bytes;
  }

  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    float m;
    std::memcpy(&m, piece.data(), 4);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const int code = piece[4 + i] % 128;
      const float d = middle(code) * m;
      values[i] = piece[4 + i] >= 128 ? -d : d;
    }
    return values;
  }

  std::vector<double> allowed(std::span<const float> a) const override {
    const double m = static_cast<double>(scale(a));
    return by_element(a, [&](double signed_x) -> double {
      const double x = std::fabs(signed_x);
      if (tensor_) return -1;
      if (m == 0 || x < m * 1.000001e-7) return std::max(x, m * 1.000001e-7);
      if (x > m * 0.9859) return m * (1 - 0.9859);
      int k = 6;
      double decade = 0.1 * m;
      while (k > 0 && x < decade) --k, decade /= 10;
      // Half a cell, and a cell more than that at most by rounding at its border: the neighbour's middle is as far.
      return 0.45 * 10 * decade / std::pow(2, k) * 1.0001 + 1e-6 * x + 0x1p-149;
    });
  }

 private:
  static float scale(std::span<const float> a) {
    float m = 0;
    for (const float x : a) m = std::max(m, std::fabs(x));
    return m < 0x1p-126f ? 0.0f : m;
  }
  // The middle of cell f of 2^k between 10^(k-7) and 10^(k-6).
  static float middle(int code) {
    if (code == 0 || code == 127) return code ? 1.0f : 0.0f;
    const int k = static_cast<int>(std::log2(code)), f = code - (1 << k);
    return static_cast<float>((2 * (1 << k) + 18 * f + 9) / (20 * std::pow(10, 6 - k) * (1 << k)));
  }
  bool tensor_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> eightbit_reference(const std::string& spec) {
  if (codec_of(spec) != "8bit") return nullptr;
  return std::make_unique<EightBit>(parameter(spec, "scale") == "tensor");
}

}  // namespace crimp::test
