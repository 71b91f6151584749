// Natural compression, written from WIRE_FORMAT.md, section 4.7, alone.
#include <cmath>

#include "support/philox_bits.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Natural final : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes;
    for (std::size_t i = 0; i < p.a.size(); ++i) {
      const float size = std::fabs(p.a[i]);
      int e = 0;
      double fraction = static_cast<double>(0x1p-63f + size) * 0x1p63 - 1;
      if (size >= 0x1p-63f) {
        int exponent;
        fraction = 2 * std::frexp(static_cast<double>(size), &exponent) - 1;
        e = exponent - 1 + 64;
      }
      if (std::floor(fraction * 65536 + 0.5) + rounding_bits(p.counter, static_cast<std::uint32_t>(i)) >= 65536) ++e;
      bytes.push_back(static_cast<std::uint8_t>(std::min(e, 127) + (std::signbit(p.a[i]) ? 128 : 0)));
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t, const RandomCounter&) const override {
    std::vector<float> values;
    for (const int code : piece) {
      const float size = code % 128 ? std::ldexp(1.0f, code % 128 - 64) : 0.0f;
      values.push_back(code > 128 ? -size : size);
    }
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_element(a, [](double x) { return std::fabs(x) + 0x1p-63; });
  }
};

}  // namespace

std::unique_ptr<const ReferenceCodec> natural_reference(const std::string& spec) {
  if (codec_of(spec) != "natural") return nullptr;
  return std::make_unique<Natural>();
}

}  // namespace crimp::test
