#include <cmath>
#include <cstring>

#include "support/half_reference.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class None final : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes(p.a.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), p.a.data(), bytes.size());
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count, const Place&) const override {
    std::vector<float> values(count);
    if (count) std::memcpy(values.data(), piece.data(), 4 * count);
    return values;
  }
  double allowed(std::span<const float>, std::size_t) const override { return 0.0; }
};

class Half final : public ReferenceCodec {
 public:
  explicit Half(bool bfloat) : bfloat_(bfloat) {}
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes;
    for (const float x : p.a) {
      const std::uint16_t h = (bfloat_ ? kBfloat : kHalf).nearest(static_cast<double>(x));
      bytes.push_back(static_cast<std::uint8_t>(h & 0xff));
      bytes.push_back(static_cast<std::uint8_t>(h >> 8));
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count, const Place&) const override {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((bfloat_ ? kBfloat : kHalf).value(static_cast<std::uint16_t>(piece[2 * i] | piece[2 * i + 1] << 8)));
    return values;
  }
  double allowed(std::span<const float> a, std::size_t i) const override {
    const double x = std::fabs(static_cast<double>(a[i]));
    return bfloat_ ? std::max(x * 0x1p-8, 0x1p-134) : std::max(x * 0x1p-11, 0x1p-25);
  }

 private:
  bool bfloat_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> cast_reference(const std::string& spec) {
  if (spec == "none") return std::make_unique<None>();
  return std::make_unique<Half>(spec == "bf16");
}

}  // namespace crimp::test
