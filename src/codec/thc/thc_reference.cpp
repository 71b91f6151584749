// THC from WIRE_FORMAT.md section 4.23: one element after the other, the table by trying every split, the quantile from
// std::erfc.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "codec/coding/dither.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

class Thc final : public ReferenceCodec {
 public:
  explicit Thc(const std::string& spec)
      : bits_(std::stoul(parameter(spec, "bits"))), g_(std::stoul(parameter(spec, "g"))),
        levels_(std::size_t{1} << bits_) {
    static std::map<std::string, std::pair<double, std::vector<int>>> known_tables;
    auto& [limit, table] = known_tables[spec];
    if (table.empty()) make_table(std::stod(parameter(spec, "clip")));
    if (table.empty()) limit = limit_, table = table_;
    limit_ = limit;
    table_ = table;
  }

  bool fixed_size() const override { return true; }

  Bytes encode(const ReferencePiece& p) const override {
    Bytes norms, bytes;
    for (std::size_t b = 0; b * 1024 < p.a.size(); ++b) {
      const auto block = p.a.subspan(b * 1024, std::min<std::size_t>(1024, p.a.size() - b * 1024));
      const float n = norm(block);
      norms.resize(norms.size() + 4);
      std::memcpy(norms.data() + norms.size() - 4, &n, 4);
      std::vector<float> y(block.begin(), block.end());
      y.resize(dimension(block.size()));
      for (std::size_t i = 0; i < y.size(); ++i)
        if (negated(p.counter, b, i)) y[i] = -y[i];
      hadamard(y);
      std::vector<unsigned> index(y.size());
      for (std::size_t i = 0; n > 0 && i < y.size(); ++i)
        index[i] = quantized(y[i], static_cast<float>(static_cast<double>(g_) / (2 * limit_)) / n,
                             dither::bits16(p.counter, dither::kRounding, static_cast<std::uint32_t>(b * 1024 + i)));
      pack(index, bytes);
    }
    norms.insert(norms.end(), bytes.begin(), bytes.end());
    return norms;
  }

  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter& counter) const override {
    std::vector<float> values;
    const std::size_t blocks = (count + 1023) / 1024;
    std::span<const std::uint8_t> rest = piece.subspan(4 * blocks);
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t m = std::min<std::size_t>(1024, count - b * 1024), d = dimension(m);
      float n;
      std::memcpy(&n, piece.data() + 4 * b, 4);
      std::vector<float> h(d);
      for (std::size_t i = 0; i < d; ++i) {
        const int t = table_[unpacked(rest, i)], g = static_cast<int>(g_);
        h[i] = static_cast<float>(g % 2 ? 2 * t - g : t - g / 2);
      }
      rest = rest.subspan(d * bits_ / 8);
      hadamard(h);
      const float unit =
          static_cast<float>((g_ % 2 ? 1.0 : 2.0) * limit_ / static_cast<double>(g_)) * n / static_cast<float>(d);
      for (std::size_t i = 0; i < m; ++i) {
        const float x = h[i] * unit;
        values.push_back(n == 0 ? 0.0f : negated(counter, b, i) ? -x : x);
      }
    }
    return values;
  }

  // The error has at most the norm of the block plus a gap in every coordinate.
  std::vector<double> allowed(std::span<const float> a) const override {
    int gap = 0;
    for (std::size_t k = 1; k < levels_; ++k) gap = std::max(gap, table_[k] - table_[k - 1]);
    return by_block(a, 1024, [&](std::span<const float> block) {
      double squares = 0;
      for (const float x : block) squares += static_cast<double>(x) * static_cast<double>(x);
      const double most = 1.01 * std::sqrt(squares) * (1 + gap * 2 * limit_ / static_cast<double>(g_));
      return [most](double) { return most; };
    });
  }

 private:
  void make_table(double clip) {
    double low = 0, high = 6;
    for (int i = 0; i < 80; ++i) {
      const double middle = (low + high) / 2;
      (std::erfc(middle / std::sqrt(2.0)) > 1 / clip ? low : high) = middle;
    }
    limit_ = low;
    // Integral of (b - x)(x - a) over the normal density by Simpson's rule.
    const auto cost = [&](std::size_t from, std::size_t to) {
      const double a = (2.0 * static_cast<double>(from) / static_cast<double>(g_) - 1) * limit_,
                   b = (2.0 * static_cast<double>(to) / static_cast<double>(g_) - 1) * limit_;
      const auto f = [&](double x) { return (b - x) * (x - a) * std::exp(-x * x / 2); };
      constexpr int steps = 200;
      double sum = f(a) + f(b);
      for (int i = 1; i < steps; ++i) sum += (i % 2 ? 4 : 2) * f(a + (b - a) * i / steps);
      return sum * (b - a) / steps / 3;
    };
    std::vector<std::vector<double>> costs(g_ + 1, std::vector<double>(g_ + 1));
    for (std::size_t a = 0; a <= g_; ++a)
      for (std::size_t b = a + 1; b <= g_; ++b) costs[a][b] = cost(a, b);
    // From the middle outwards: the least cost of `left` more values below v, and the value that comes next.
    std::vector<std::vector<std::pair<double, std::size_t>>> known(
        levels_ / 2, std::vector<std::pair<double, std::size_t>>(g_ + 1, {-1, 0}));
    const std::function<double(std::size_t, std::size_t)> best = [&](std::size_t v, std::size_t left) -> double {
      if (left == 0) return v == 0 ? 0 : 1e9;
      auto& [value, next] = known[left][v];
      if (value >= 0) return value;
      value = 1e9;
      for (std::size_t lower = 0; lower < v; ++lower) {
        const double c = best(lower, left - 1) + 2 * costs[lower][v];
        if (c < value) value = c, next = lower;
      }
      return value;
    };
    std::size_t top = 0;
    double least = 1e9;
    for (std::size_t v = 0; 2 * v < g_; ++v) {
      const double c = best(v, levels_ / 2 - 1) + costs[v][g_ - v];
      if (c < least) least = c, top = v;
    }
    table_.resize(levels_);
    for (std::size_t i = levels_ / 2; i-- > 0; top = known[i][top].second) {
      table_[i] = static_cast<int>(top);
      table_[levels_ - 1 - i] = static_cast<int>(g_ - top);
      if (i == 0) break;
    }
  }
  static std::size_t dimension(std::size_t m) { return m <= 128 ? 128 : m <= 256 ? 256 : m <= 512 ? 512 : 1024; }
  static bool negated(const RandomCounter& counter, std::size_t block, std::size_t i) {
    const std::uint32_t word = dither::bits16({counter.element, counter.step, 0}, dither::kShared,
                                              static_cast<std::uint32_t>(block / 2 * 128 + i % 128));
    return word >> (8 * (block % 2) + i / 128) & 1;
  }
  static void hadamard(std::vector<float>& y) {
    for (std::size_t stride = 1; stride < y.size(); stride *= 2)
      for (std::size_t i = 0; i < y.size(); ++i)
        if ((i & stride) == 0) {
          const float a = y[i], b = y[i + stride];
          y[i] = a + b;
          y[i + stride] = a - b;
        }
  }
  static float norm(std::span<const float> block) {
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    if (largest == 0) return 0;
    const float factor = largest < 0x1p-40f ? 0x1p80f : largest >= 0x1p50f ? 0x1p-80f : 1.0f;
    float lanes[64] = {};
    for (std::size_t i = 0; i < block.size(); ++i) {
      const float x = block[i] * factor;
      lanes[i % 64] += x * x;
    }
    for (std::size_t width = 32; width > 0; width /= 2)
      for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    const float n = std::sqrt(lanes[0]) / factor;
    return n < 0x1p-100f ? 0 : std::min(n, 0x1p120f);
  }
  unsigned quantized(float y, float scale, std::uint32_t random) const {
    const float u = std::min(std::max(y * scale + static_cast<float>(g_) / 2, 0.0f), static_cast<float>(g_));
    std::size_t i = levels_ - 1;
    while (static_cast<float>(table_[i]) > std::floor(u)) --i;
    float at = 65536.0f * static_cast<float>(levels_ - 1);
    if (i < levels_ - 1) {
      const double slope = 65536.0 / (table_[i + 1] - table_[i]);
      at = static_cast<float>(slope) * u + static_cast<float>(65536.0 * static_cast<double>(i) - slope * table_[i]);
    }
    return static_cast<unsigned>((static_cast<std::int64_t>(at) + random) / 65536);
  }
  void pack(const std::vector<unsigned>& index, Bytes& to) const {
    for (std::size_t tile = 0; tile < index.size(); tile += 128) {
      const std::size_t begin = to.size();
      to.resize(begin + 16 * bits_);
      for (std::size_t i = 0; i < 128; ++i) {
        const unsigned v = index[tile + i];
        const auto put = [&](std::size_t byte, unsigned value, std::size_t shift) {
          to[begin + byte] = static_cast<std::uint8_t>(to[begin + byte] | value << shift);
        };
        if (bits_ == 4) {
          put(i % 64, v, i < 64 ? 4 : 0);
        } else {
          put(i % 32, v & 3, 6 - i / 32 * 2);
          if (bits_ == 3) put(32 + i % 16, v >> 2, 7 - i / 16);
        }
      }
    }
  }
  unsigned unpacked(std::span<const std::uint8_t> block, std::size_t i) const {
    const auto tile = block.subspan(i / 128 * 16 * bits_);
    i %= 128;
    if (bits_ == 4) return i < 64 ? tile[i] >> 4 : tile[i - 64] & 15u;
    unsigned v = tile[i % 32] >> (6 - i / 32 * 2) & 3u;
    if (bits_ == 3) v |= (tile[32 + i % 16] >> (7 - i / 16) & 1u) << 2;
    return v;
  }

  std::size_t bits_, g_, levels_;
  double limit_ = 0;
  std::vector<int> table_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> thc_reference(const std::string& spec) {
  if (codec_of(spec) != "thc") return nullptr;
  return std::make_unique<Thc>(spec);
}

}  // namespace crimp::test
