#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/half_reference.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Fp32 final : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes(p.a.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), p.a.data(), bytes.size());
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> values(count);
    if (count) std::memcpy(values.data(), piece.data(), 4 * count);
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override { return std::vector<double>(a.size(), 0.0); }
};

// Eight scale bytes, one for each 1280 elements, then the elements as binary16.
class Fp16 final : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes(8);
    int k = 0;
    for (std::size_t i = 0; i < p.a.size(); ++i) {
      if (i % 1280 == 0) k = exponent_of(p.a, i);
      bytes[i / 1280] = static_cast<std::uint8_t>(k + 127);
      const std::uint16_t h = kHalf.nearest(std::ldexp(static_cast<double>(p.a[i]), -k));
      bytes.push_back(static_cast<std::uint8_t>(h & 0xff));
      bytes.push_back(static_cast<std::uint8_t>(h >> 8));
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(std::ldexp(
          kHalf.value(static_cast<std::uint16_t>(piece[8 + 2 * i] | piece[9 + 2 * i] << 8)), piece[i / 1280] - 127));
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_block(a, 1280, [](std::span<const float> block) {
      return [least = std::ldexp(0x1p-25, exponent_of(block, 0))](double x) {
        return std::max(std::fabs(x) * 0x1p-11, least);
      };
    });
  }

 private:
  // Of the scale of element i's block: the least from -126 on with which its largest magnitude is at most 65504.
  static int exponent_of(std::span<const float> a, std::size_t i) {
    double peak = 0;
    for (std::size_t j = i / 1280 * 1280; j < std::min(a.size(), i / 1280 * 1280 + 1280); ++j)
      peak = std::max(peak, std::fabs(static_cast<double>(a[j])));
    int k = -126;
    while (peak > std::ldexp(65504.0, k) && k < 112) ++k;
    return k;
  }
};

class Bf16 final : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes;
    for (const float x : p.a) {
      const std::uint16_t h = kBfloat.nearest(static_cast<double>(x));
      bytes.push_back(static_cast<std::uint8_t>(h & 0xff));
      bytes.push_back(static_cast<std::uint8_t>(h >> 8));
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(kBfloat.value(static_cast<std::uint16_t>(piece[2 * i] | piece[2 * i + 1] << 8)));
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_element(a, [](double x) { return std::max(std::fabs(x) * 0x1p-8, 0x1p-134); });
  }
};

}  // namespace

std::unique_ptr<const ReferenceCodec> cast_reference(const std::string& spec) {
  if (codec_of(spec) == "fp32") return std::make_unique<Fp32>();
  if (codec_of(spec) == "fp16") return std::make_unique<Fp16>();
  if (codec_of(spec) == "bf16") return std::make_unique<Bf16>();
  return nullptr;
}

}  // namespace crimp::test
