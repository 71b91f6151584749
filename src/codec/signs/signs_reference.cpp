#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

// 1bit sends two magnitudes, efsignsgd one; signsgd and signum none, but a second plane where a piece has zeros.
class Signs final : public ReferenceCodec {
 public:
  explicit Signs(const std::string& spec)
      : scales_(spec.starts_with("1bit")        ? 2
                : spec.starts_with("efsignsgd") ? 1
                                                : 0),
        tensor_(spec.find("scale=tensor") != spec.npos) {}
  bool fixed_size() const override { return scales_ > 0; }
  // The mean of |a|: of each piece the sums as without it, added in float64.
  Selection select(std::span<const float> group, const RandomCounter&) const override {
    double all = 0;
    for (std::size_t at = 0; at < group.size(); at += 10240) {
      const auto piece = group.subspan(at, std::min<std::size_t>(10240, group.size() - at));
      all += static_cast<double>(sum(piece, false) - sum(piece, true));
    }
    return {.scale = static_cast<float>(std::min(all / static_cast<double>(group.size()), 0x1p114))};
  }

  Bytes encode(const ReferencePiece& p) const override {
    std::size_t below = 0;
    for (const float x : p.a) below += x < 0;
    const float negatives = sum(p.a, true), rest = sum(p.a, false), n = static_cast<float>(p.a.size());
    std::array<float, 2> m{};
    if (scales_ == 2) {
      if (below > 0) m[0] = -negatives / static_cast<float>(below);
      if (below < p.a.size()) m[1] = rest / static_cast<float>(p.a.size() - below);
    } else {
      m[0] = tensor_ ? p.selection.scale : (rest - negatives) / n;
    }
    for (float& scale : m) scale = std::min(scale, 0x1p114f);
    Bytes bytes(4 * scales_ + (p.a.size() + 7) / 8);
    std::memcpy(bytes.data(), m.data(), 4 * scales_);
    for (std::size_t i = 0; i < p.a.size(); ++i)
      if (p.a[i] < 0) bytes[4 * scales_ + i / 8] = static_cast<std::uint8_t>(bytes[4 * scales_ + i / 8] | 1 << i % 8);
    if (scales_ == 0 && std::count(p.a.begin(), p.a.end(), 0.0f) > 0) {
      const std::size_t plane = bytes.size();
      bytes.resize(2 * plane);
      for (std::size_t i = 0; i < p.a.size(); ++i)
        if (p.a[i] == 0) bytes[plane + i / 8] = static_cast<std::uint8_t>(bytes[plane + i / 8] | 1 << i % 8);
    }
    return bytes;
  }

  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::array<float, 2> m{1.0f, 1.0f};
    std::memcpy(m.data(), piece.data(), 4 * scales_);
    if (scales_ == 1) m[1] = m[0];
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = piece[4 * scales_ + i / 8] & 1 << i % 8 ? -m[0] : m[1];
    const std::size_t plane = (count + 7) / 8;
    for (std::size_t i = 0; i < count && scales_ == 0 && piece.size() == 2 * plane; ++i)
      if (piece[plane + i / 8] & 1 << i % 8) values[i] = 0.0f;
    return values;
  }

  float finish(float sum, int ranks) const override {
    if (scales_ > 0) return sum;
    return static_cast<float>(sum == 0 ? 0 : sum > 0 ? ranks : -ranks);
  }

  std::vector<double> allowed(std::span<const float> a) const override {
    double peak = 0;
    for (const float x : a) peak = std::max(peak, std::fabs(static_cast<double>(x)));
    return by_element(a, [&](double x) { return tensor_ ? -1 : scales_ == 0 ? std::fabs(x) + 1 : 2 * peak; });
  }

 private:
  // Element i in lane i mod 64; then halves of the lanes are added.
  static float sum(std::span<const float> a, bool negative) {
    std::array<float, 64> lane{};
    for (std::size_t i = 0; i < a.size(); ++i)
      if ((a[i] < 0) == negative) lane[i % 64] += a[i];
    for (std::size_t half = 32; half > 0; half /= 2)
      for (std::size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    return lane[0];
  }
  std::size_t scales_;
  bool tensor_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> signs_reference(const std::string& spec) {
  const std::string codec = codec_of(spec);
  if (codec != "1bit" && codec != "signsgd" && codec != "signum" && codec != "efsignsgd") return nullptr;
  return std::make_unique<Signs>(spec);
}

}  // namespace crimp::test
