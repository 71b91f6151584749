// randomk, from WIRE_FORMAT.md, sections 4.19 and 5.
#include <cmath>
#include <cstring>

#include "codec/coding/dither.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class RandomK final : public ReferenceCodec {
 public:
  explicit RandomK(const std::string& spec)
      : ratio_(std::stof(parameter(spec, "ratio"))), scale_(parameter(spec, "scale") == "1") {}
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes;
    for (const auto& [i, width] : drawn(p.a.size(), p.counter)) {
      const float v =
          scale_ && p.counter.rank < 0x80000000 ? std::min(std::max(p.a[i] * width, -0x1p114f), 0x1p114f) : p.a[i];
      std::uint8_t four[4];
      std::memcpy(four, &v, 4);
      bytes.insert(bytes.end(), four, four + 4);
    }
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter& counter) const override {
    std::vector<float> d(count);
    std::size_t j = 0;
    for (const auto& element : drawn(count, counter)) std::memcpy(&d[element.index], &piece[4 * j++], 4);
    return d;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_element(a, [&](double x) { return scale_ ? -1 : std::fabs(x); });
  }

 private:
  struct Element {
    std::size_t index;
    float width;
  };
  std::vector<Element> drawn(std::size_t n, const RandomCounter& counter) const {
    const auto k = std::max<std::size_t>(
        1, static_cast<std::size_t>(std::floor(static_cast<double>(ratio_) * static_cast<double>(n) + 0.5)));
    std::vector<Element> all;
    const auto bits = [&](std::size_t i) {
      return dither::bits16({counter.element, counter.step, 0}, dither::kShared, static_cast<std::uint32_t>(i));
    };
    for (std::size_t j = 0; j < k; ++j) {
      const std::size_t begin = j * n / k, width = (j + 1) * n / k - begin,
                        word = bits(2 * j) + 65536 * std::size_t{bits(2 * j + 1)};
      all.push_back({begin + (width * word >> 32), static_cast<float>(width)});
    }
    return all;
  }
  float ratio_;
  bool scale_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> randomk_reference(const std::string& spec) {
  if (codec_of(spec) != "randomk") return nullptr;
  return std::make_unique<RandomK>(spec);
}

}  // namespace crimp::test
