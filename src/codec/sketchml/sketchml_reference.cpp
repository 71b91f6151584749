#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

class SketchMl final : public ReferenceCodec {
 public:
  explicit SketchMl(const std::string& spec) : quantiles_(std::stoul(parameter(spec, "quantiles"))) {}
  bool fixed_size() const override { return true; }

  Bytes encode(const ReferencePiece& p) const override {
    const std::size_t n = p.a.size(), buckets = std::min(quantiles_, n), plane = (n + 7) / 8;
    const std::vector<int> keys = all_keys(p.a);
    std::map<int, std::size_t> filled;
    for (const int k : keys) ++filled[k];
    std::map<int, std::size_t> bucket;
    std::size_t below = 0;
    for (const auto& [key, count] : filled) {
      bucket[key] = buckets * (2 * below + count - 1) / (2 * n);
      below += count;
    }
    // Exact sums of multiples of 2^-k, k such that the largest magnitude has 48 bits before the point.
    int exponent;
    (void)std::frexp(std::max(peak(p.a), 0x1p-126f), &exponent);
    const int k = 48 - exponent;
    std::vector<std::int64_t> sums(buckets);
    std::vector<std::int64_t> counts(buckets);
    Bytes bytes(4 * buckets + bits(buckets) * plane);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t id = bucket[keys[i]];
      sums[id] += static_cast<std::int64_t>(std::trunc(std::ldexp(static_cast<double>(p.a[i]), k)));
      ++counts[id];
      for (std::size_t b = 0; b < bits(buckets); ++b)
        if (id >> b & 1) {
          auto& byte = bytes[4 * buckets + b * plane + i / 8];
          byte = static_cast<std::uint8_t>(byte | 1 << i % 8);
        }
    }
    for (std::size_t b = 0; b < buckets; ++b) {
      const float mean =
          counts[b] ? static_cast<float>(std::ldexp(static_cast<double>(sums[b]) / static_cast<double>(counts[b]), -k))
                    : 0.0f;
      std::memcpy(bytes.data() + 4 * b, &mean, 4);
    }
    return bytes;
  }

  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    const std::size_t buckets = std::min(quantiles_, count), plane = (count + 7) / 8;
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t id = 0;
      for (std::size_t b = 0; b < bits(buckets); ++b)
        id |= static_cast<std::size_t>(piece[4 * buckets + b * plane + i / 8] >> i % 8 & 1) << b;
      std::memcpy(&values[i], piece.data() + 4 * id, 4);
    }
    return values;
  }

  std::vector<double> allowed(std::span<const float> a) const override {
    return std::vector<double>(a.size(), 2.0 * static_cast<double>(peak(a)));
  }

 private:
  static std::size_t bits(std::size_t buckets) {
    std::size_t b = 0;
    while ((std::size_t{1} << b) < buckets) ++b;
    return b;
  }
  static float peak(std::span<const float> a) {
    float m = 0;
    for (const float x : a) m = std::max(m, std::fabs(x));
    return m;
  }
  static int upper(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<int>(bits >> 16 & 0x7fff);
  }
  // Ordered like the values: 1 + m for the rest, -m for the negatives, m = 0..2047.
  static std::vector<int> all_keys(std::span<const float> a) {
    const int base = std::max(upper(peak(a)) - 2047, 0);
    std::vector<int> keys;
    for (const float x : a) {
      const int m = std::max(upper(x) - base, 0);
      keys.push_back(x < 0 ? -m : 1 + m);
    }
    return keys;
  }
  std::size_t quantiles_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> sketchml_reference(const std::string& spec) {
  if (codec_of(spec) != "sketchml") return nullptr;
  return std::make_unique<SketchMl>(spec);
}

}  // namespace crimp::test
