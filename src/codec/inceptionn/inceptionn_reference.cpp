#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Inceptionn final : public ReferenceCodec {
 public:
  explicit Inceptionn(const std::string& spec) : e_(-std::stoi(parameter(spec, "log2_bound"))), h_((e_ + 1) / 2) {}
  bool fixed_size() const override { return false; }

  Bytes encode(const ReferencePiece& p) const override {
    const std::size_t plane = (p.a.size() + 7) / 8;
    Bytes planes(2 * plane), bytes, halves, floats;
    const auto put = [](Bytes& to, std::uint32_t x, int n) {
      for (int i = 0; i < n; ++i) to.push_back(static_cast<std::uint8_t>(x >> 8 * i));
    };
    for (std::size_t i = 0; i < p.a.size(); ++i) {
      const float a = p.a[i];
      const int c = size_class(a);
      if (c == 1) put(bytes, units(a, h_ + 7, 127) | (a < 0 ? 0x80u : 0u), 1);
      if (c == 2) put(halves, units(a, 15, 32767) | (a < 0 ? 0x8000u : 0u), 2);
      if (c == 3) {
        std::uint32_t bits;
        std::memcpy(&bits, &a, 4);
        put(floats, bits, 4);
      }
      for (const std::size_t bit : {0, 1})
        if (c >> bit & 1)
          planes[bit * plane + i / 8] = static_cast<std::uint8_t>(planes[bit * plane + i / 8] | 1 << i % 8);
    }
    for (const Bytes* part : {&bytes, &halves, &floats}) planes.insert(planes.end(), part->begin(), part->end());
    return planes;
  }

  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    const std::size_t plane = (count + 7) / 8;
    const auto class_at = [&](std::size_t i) {
      return (piece[i / 8] >> i % 8 & 1) + 2 * (piece[plane + i / 8] >> i % 8 & 1);
    };
    std::size_t counts[4] = {};
    for (std::size_t i = 0; i < count; ++i) ++counts[class_at(i)];
    std::size_t at[4] = {0, 2 * plane, 2 * plane + counts[1], 2 * plane + counts[1] + 2 * counts[2]};
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const int c = class_at(i);
      if (c == 1) {
        const int x = piece[at[1]];
        values[i] = std::ldexp(static_cast<float>(x % 128), -h_ - 7) * (x >= 128 ? -1.0f : 1.0f);
      } else if (c == 2) {
        const int x = piece[at[2]] + 256 * piece[at[2] + 1];
        values[i] = std::ldexp(static_cast<float>(x % 32768), -15) * (x >= 32768 ? -1.0f : 1.0f);
      } else if (c == 3) {
        std::memcpy(&values[i], piece.data() + at[3], 4);
      }
      at[c] += c == 3 ? 4 : static_cast<std::size_t>(c);
    }
    return values;
  }

  std::vector<double> allowed(std::span<const float> a) const override {
    return by_element(a, [&](double x) { return std::fabs(x) >= 1 ? 0 : std::ldexp(1.0, -e_); });
  }

 private:
  int size_class(float a) const {
    const double x = std::fabs(static_cast<double>(a));
    return x >= 1 ? 3 : x >= std::ldexp(1.0, -h_) ? 2 : x >= std::ldexp(1.0, -e_) ? 1 : 0;
  }
  static std::uint32_t units(float a, int shift, int most) {
    const float x = std::ldexp(std::fabs(a), shift) + 0.5f;
    return static_cast<std::uint32_t>(std::min(static_cast<int>(x), most));
  }
  int e_, h_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> inceptionn_reference(const std::string& spec) {
  if (codec_of(spec) != "inceptionn") return nullptr;
  return std::make_unique<Inceptionn>(spec);
}

}  // namespace crimp::test
