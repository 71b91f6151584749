// QSGD, TernGrad and max-min, written from WIRE_FORMAT.md, sections 4.0, 4.5, 4.6 and 4.14, alone.
#include <cmath>
#include <cstring>

#include "codec/threelc/threelc_reference.hpp"
#include "support/philox_bits.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

void put(Bytes& to, float x) {
  to.resize(to.size() + 4);
  std::memcpy(to.data() + to.size() - 4, &x, 4);
}
float get(std::span<const std::uint8_t> from, std::size_t at) {
  float x;
  std::memcpy(&x, from.data() + at, 4);
  return x;
}

// Section 4.0.
Bytes packed(const std::vector<unsigned>& codes, std::size_t bits) {
  Bytes bytes;
  for (std::size_t begin = 0; begin < codes.size(); begin += 128) {
    const std::size_t m = std::min<std::size_t>(128, codes.size() - begin), w = (m + 7) / 8;
    std::vector<bool> strings(w * 8 * bits);  // lane by lane
    for (std::size_t e = 0; e < m; ++e)
      for (std::size_t k = 0; k < bits; ++k) strings[e % w * 8 * bits + e / w * bits + k] = codes[begin + e] >> k & 1;
    for (std::size_t k = 0; k < bits; ++k)
      for (std::size_t lane = 0; lane < w; ++lane) {
        unsigned byte = 0;
        for (std::size_t j = 0; j < 8; ++j) byte |= static_cast<unsigned>(strings[lane * 8 * bits + k * 8 + j]) << j;
        bytes.push_back(static_cast<std::uint8_t>(byte));
      }
  }
  return bytes;
}
std::vector<unsigned> unpacked(std::span<const std::uint8_t> bytes, std::size_t count, std::size_t bits) {
  std::vector<unsigned> codes;
  for (std::size_t begin = 0; begin < count; begin += 128) {
    const std::size_t m = std::min<std::size_t>(128, count - begin), w = (m + 7) / 8;
    for (std::size_t e = 0; e < m; ++e) {
      unsigned code = 0;
      for (std::size_t k = 0; k < bits; ++k) {
        const std::size_t bit = e / w * bits + k;
        code |= (static_cast<unsigned>(bytes[bit / 8 * w + e % w]) >> bit % 8 & 1) << k;
      }
      codes.push_back(code);
    }
    bytes = bytes.subspan(w * bits);
  }
  return codes;
}

// floor(x + u) for x within [low, high], with 16 fractional bits.
int rounded(float a, float base, float inverse, int low, int high, unsigned u) {
  const double fixed = std::nearbyint(static_cast<double>((a - base) * inverse));
  const double held = std::min(std::max(fixed, low * 65536.0), high * 65536.0);
  return static_cast<int>(std::floor((held + u) / 65536.0));
}

float sum64(std::span<const float> a, float (*term)(float)) {
  float lanes[64] = {};
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 64] += term(a[i]);
  for (std::size_t width = 32; width; width /= 2)
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}
float same(float x) { return x; }
float square(float x) { return x * x; }

class Blocks : public ReferenceCodec {
 public:
  bool fixed_size() const override { return true; }

 protected:
  Blocks(std::size_t block, std::size_t bits, std::size_t side) : block_(block), bits_(bits), side_(side) {}
  std::size_t side_bytes(std::size_t count) const { return (count + block_ - 1) / block_ * side_; }
  // fn(the block's values, index of its first element)
  template <class Fn>
  void each(std::size_t count, Fn&& fn) const {
    for (std::size_t at = 0; at < count; at += block_) fn(at, std::min(block_, count - at));
  }
  Bytes with_codes(Bytes side, const std::vector<unsigned>& codes) const {
    const Bytes rest = packed(codes, bits_);
    side.insert(side.end(), rest.begin(), rest.end());
    return side;
  }
  std::size_t block_, bits_, side_;
};

class MaxMin final : public Blocks {
 public:
  explicit MaxMin(const std::string& spec)
      : Blocks(std::stoul(parameter(spec, "block")), std::stoul(parameter(spec, "bits")), 8),
        nearest_(parameter(spec, "rounding") == "nearest") {}
  Bytes encode(const ReferencePiece& p) const override {
    Bytes side;
    std::vector<unsigned> codes;
    each(p.a.size(), [&](std::size_t at, std::size_t n) {
      const auto [low, range] = reach(p.a.subspan(at, n));
      const float step = range < 0x1p-100f ? 0 : range / levels(),
                  inverse = range < 0x1p-100f ? 0 : levels() * 65536.0f / range;
      put(side, low);
      put(side, step);
      for (std::size_t i = at; i < at + n; ++i)
        codes.push_back(
            static_cast<unsigned>(rounded(p.a[i], low, inverse, 0, static_cast<int>(levels()),
                                          nearest_ ? 32768 : rounding_bits(p.counter, static_cast<std::uint32_t>(i)))));
    });
    return with_codes(side, codes);
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    const auto codes = unpacked(piece.subspan(side_bytes(count)), count, bits_);
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i)
      values.push_back(get(piece, i / block_ * 8) + static_cast<float>(codes[i]) * get(piece, i / block_ * 8 + 4));
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_block(a, block_, [&](std::span<const float> block) {
      const auto [low, range] = reach(block);
      const double step = static_cast<double>(range) / static_cast<double>(levels());
      const double size = std::max(std::fabs(static_cast<double>(low)),
                                   std::fabs(static_cast<double>(low) + static_cast<double>(range)));
      const double most = (nearest_ ? 0.5 : 1.0) * step * (1 + 0x1p-12) + size * 0x1p-21 + 0x1p-100;
      return [most](double) { return most; };
    });
  }

 private:
  float levels() const { return static_cast<float>((1 << bits_) - 1); }
  static std::pair<float, float> reach(std::span<const float> a) {
    float low = a[0], high = a[0];
    for (const float x : a) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
    return {low == 0 ? 0.0f : low, high - low};
  }
  bool nearest_;
};

class Qsgd final : public Blocks {
 public:
  explicit Qsgd(const std::string& spec)
      : Blocks(std::stoul(parameter(spec, "bucket")),
               static_cast<std::size_t>(std::ceil(std::log2(2 * std::stod(parameter(spec, "s")) + 1))), 4),
        s_(std::stoi(parameter(spec, "s"))) {}
  Bytes encode(const ReferencePiece& p) const override {
    Bytes side;
    std::vector<unsigned> codes;
    each(p.a.size(), [&](std::size_t at, std::size_t n) {
      const float norm = norm_of(p.a.subspan(at, n)), inverse = norm > 0 ? static_cast<float>(s_) * 65536.0f / norm : 0;
      put(side, norm);
      for (std::size_t i = at; i < at + n; ++i)
        codes.push_back(static_cast<unsigned>(
            s_ + rounded(p.a[i], 0, inverse, -s_, s_, rounding_bits(p.counter, static_cast<std::uint32_t>(i)))));
    });
    return with_codes(side, codes);
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    const auto codes = unpacked(piece.subspan(side_bytes(count)), count, bits_);
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
      const float step = get(piece, i / block_ * 4) / static_cast<float>(s_);
      values.push_back(0.0f + static_cast<float>(static_cast<int>(codes[i]) - s_) * step);
    }
    return values;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_block(a, block_, [&](std::span<const float> block) {
      const double norm = static_cast<double>(norm_of(block));
      return [most = norm / s_ * (1 + 0x1p-12) + norm * 0x1p-18 + 0x1p-60](double) { return most; };
    });
  }

 private:
  static float norm_of(std::span<const float> a) {
    const float norm = std::sqrt(sum64(a, square));
    return norm < 0x1p-60f ? 0 : std::min(norm, 0x1p63f);
  }
  int s_;
};

class TernGrad final : public ReferenceCodec {
 public:
  explicit TernGrad(const std::string& spec)
      : clip_(std::stof(parameter(spec, "clip"))), tensor_(parameter(spec, "scale") == "tensor") {}
  // Sums of pieces, added in float64.
  Selection select(std::span<const float> group, const RandomCounter&) const override {
    double sum = 0, squares = 0;
    float peak = 0;
    for (std::size_t at = 0; at < group.size(); at += 10240) {
      const auto piece = group.subspan(at, std::min<std::size_t>(10240, group.size() - at));
      sum += static_cast<double>(sum64(piece, same)), squares += static_cast<double>(sum64(piece, square));
      for (const float x : piece) peak = std::max(peak, std::fabs(x));
    }
    return {.scale = scale_of(group.size(), static_cast<float>(sum), static_cast<float>(squares), peak)};
  }
  bool fixed_size() const override { return true; }
  Bytes encode(const ReferencePiece& p) const override {
    Bytes bytes;
    const float scale = tensor_ ? p.selection.scale : scale_of(p.a), inverse = scale > 0 ? 65536.0f / scale : 0;
    put(bytes, scale);
    std::vector<float> ternary;  // 3LC's bytes of values -1, 0, 1 and scale 1
    for (std::size_t i = 0; i < p.a.size(); ++i)
      ternary.push_back(static_cast<float>(
          rounded(p.a[i], 0, inverse, -1, 1, rounding_bits(p.counter, static_cast<std::uint32_t>(i)))));
    const Bytes base = threelc_base_bytes(ternary, 1.0f);
    bytes.insert(bytes.end(), base.begin(), base.end());
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    const float scale = get(piece, 0);
    std::vector<float> values = threelc_values(Bytes(piece.begin() + 4, piece.end()), count, 1.0f);
    for (float& x : values) x = x > 0 ? scale : x < 0 ? -scale : 0;
    return values;
  }
  // What is clipped may be as far as it likes.
  std::vector<double> allowed(std::span<const float> a) const override {
    const double scale = static_cast<double>(scale_of(a));
    return by_element(
        a, [&](double x) { return tensor_ ? -1 : std::max(scale, std::fabs(x) - scale) * (1 + 0x1p-20) + 0x1p-60; });
  }

 private:
  float scale_of(std::span<const float> a) const {
    float peak = 0;
    for (const float x : a) peak = std::max(peak, std::fabs(x));
    return scale_of(a.size(), sum64(a, same), sum64(a, square), peak);
  }
  float scale_of(std::size_t count, float sum, float squares, float peak) const {
    const auto n = static_cast<float>(count);
    const float mean = sum / n, variance = squares / n - mean * mean;
    const float sigma = variance > 0 ? std::sqrt(variance) : 0;
    peak = std::min(peak, clip_ * std::max(sigma, std::fabs(mean)));
    return peak < 0x1p-60f ? 0 : peak;
  }
  float clip_;
  bool tensor_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> uniform_reference(const std::string& spec) {
  const std::string codec = codec_of(spec);
  if (codec == "qsgd") return std::make_unique<Qsgd>(spec);
  if (codec == "terngrad") return std::make_unique<TernGrad>(spec);
  if (codec == "maxmin") return std::make_unique<MaxMin>(spec);
  return nullptr;
}

}  // namespace crimp::test
