#include "schedule/sketch.hpp"

#include <algorithm>
#include <cmath>

namespace crimp {
namespace {

constexpr double kBeyondChance = 4;        // standard deviations
constexpr double kLeastCorrelation = 0.2;  // of magnitudes' orders that are alike
constexpr double kLeastOctaves =
    1.0 / 32;  // by which magnitudes differ in the root of the mean where they say anything

constexpr int kFloatBits = 23;     // of a float32 behind the first one
constexpr int kFractionBits = 20;  // that are zero by chance once in a million

// Sums over clusters of products of two vectors' elements.
struct Products {
  double halves[2] = {}, squares = 0;
  int same = 0, opposed = 0;
  template <class Product>
  Products(std::size_t elements, Product&& product) {
    for (std::size_t c = 0; c < elements; c += Sketch::kClusterElements) {
      double cluster = 0;
      for (std::size_t i = c; i < std::min(elements, c + Sketch::kClusterElements); ++i) cluster += product(i);
      halves[c / Sketch::kClusterElements % 2] += cluster;
      squares += cluster * cluster;
      same += cluster > 0;
      opposed += cluster < 0;
    }
  }
  double sum() const { return halves[0] + halves[1]; }
  Likeness::Way way(double scale, double shift) const {
    return {true,
            scale * (sum() - shift),
            scale * scale * squares,
            {scale * (2 * halves[0] - shift), scale * (2 * halves[1] - shift)}};
  }
};

}  // namespace

Sketch::Sketch(std::uint64_t count, std::uint64_t reads, const Read& read) {
  const std::uint64_t run = kElements / reads, stride = count / reads;
  for (std::uint64_t i = 0; i < reads; ++i) {
    // Somewhere in its part of the buffer: places at equal distances would fall on one column of many matrices.
    const std::uint64_t slack = stride > run ? stride - run : 0;
    const std::uint64_t first = i * stride + ((i + 1) * 0x9e3779b97f4a7c15u >> 32) % (slack + 1);
    if (first >= count) break;
    const std::uint64_t here = std::min(run, count - first);
    read(first, here, values_.data() + i * run);
    size_ = i * run + here;
  }
  double sum = 0;
  bool above = false, below = false;
  int fraction_bits = 0;  // zeros, where a fraction would be
  for (const float v : values_) {
    sum += static_cast<double>(v) * static_cast<double>(v);
    whole_ = whole_ && v == std::trunc(v);
    if (v != 0 && whole_) fraction_bits += std::max(0, kFloatBits - std::ilogb(v));
    above = above || v > 0, below = below || v < 0;
  }
  whole_ = whole_ && fraction_bits >= kFractionBits;
  one_sign_ = !above || !below;
  norm_ = std::isfinite(sum) ? sum : 0;
  if (norm_ == 0) return;
  const double least = std::log2(norm_ / static_cast<double>(size_)) / 2 - kDeep;
  for (std::size_t i = 0; i < size_; ++i) {
    const double octaves =
        values_[i] == 0.0f ? least : std::max(least, std::log2(std::abs(static_cast<double>(values_[i]))));
    octaves_[i] = static_cast<std::int16_t>(std::lround(octaves * kSteps));
    level_ += octaves_[i] / static_cast<double>(size_);
  }
  for (std::size_t i = 0; i < size_; ++i) depth_ += (octaves_[i] - level_) * (octaves_[i] - level_);
}

Likeness::Likeness(const Sketch& x, const Sketch& y)
    : known(x.usable() && y.usable()), gradient(x.gradient() || y.gradient()) {
  if (!known) return;
  const std::size_t size = std::max(x.size_, y.size_);
  const Products products(
      size, [&](std::size_t i) { return static_cast<double>(x.values_[i]) * static_cast<double>(y.values_[i]); });
  direction = products.way(2 / (x.norm_ + y.norm_), 0);
  alike = products.same - products.opposed > kBeyondChance * std::sqrt(products.same + products.opposed);

  const double n = static_cast<double>(size), between = n * (x.level_ - y.level_) * (x.level_ - y.level_) / 4,
               all = x.depth_ + y.depth_ + 2 * between;
  if (all <= 2 * n * (kLeastOctaves * Sketch::kSteps) * (kLeastOctaves * Sketch::kSteps)) return;
  const Products order(size, [&](std::size_t i) { return (x.octaves_[i] - x.level_) * (y.octaves_[i] - y.level_); });
  magnitudes = order.way(2 / all, between);
  alike = alike || (order.sum() > kBeyondChance * std::sqrt(order.squares) &&
                    order.sum() > kLeastCorrelation * std::sqrt(x.depth_ * y.depth_));
}

}  // namespace crimp
