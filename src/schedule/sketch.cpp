#include "schedule/sketch.hpp"

#include <algorithm>
#include <cmath>

namespace crimp {
namespace {

constexpr double kBeyondChance = 4;        // standard deviations
constexpr double kLeastCorrelation = 0.2;  // of magnitudes' orders that are alike
constexpr double kLeastOctaves =
    1.0 / 32;  // by which magnitudes differ in the root of the mean where they say anything

constexpr float kApart = 16;  // times the largest value looked at, beyond which a value is of another kind

// The values at one end of a buffer.
struct End {
  bool other = false;    // some are of another kind than `most`, the largest elsewhere, is of
  bool counted = false;  // whole numbers go on beyond kEnd, and not only zeros
  // at(i): the i-th from the end.
  template <class At>
  End(Dtype type, float most, At&& at) {
    // Of these a whole number is hardly chance.
    const float largest = type == Dtype::bf16 ? 2 : type == Dtype::f16 ? 16 : 0x1p17f;
    const auto whole = [&](float v) { return v == std::trunc(v) && std::abs(v) < largest; };
    for (std::uint64_t i = 0; i < Sample::kEnd; ++i) {
      const float v = at(i);
      other = other || (v != 0 && (whole(v) || std::abs(v) > kApart * most));
    }
    if (!other) return;
    std::uint64_t last = 0, numbers = 0;
    for (std::uint64_t i = 0; i < 4 * Sample::kEnd; ++i) {
      const float v = at(i);
      if (!whole(v)) break;
      if (v != 0) last = i, ++numbers;
    }
    counted = last >= Sample::kEnd && numbers > Sample::kEnd / 2;
  }
};

// Sums over clusters of products of two vectors' elements.
struct Products {
  double halves[2] = {}, squares = 0;
  int same = 0, opposed = 0;
  template <class Product>
  Products(std::size_t elements, Product&& product) {
    for (std::size_t c = 0; c < elements; c += Sample::kClusterElements) {
      double cluster = 0;
      for (std::size_t i = c; i < std::min(elements, c + Sample::kClusterElements); ++i) cluster += product(i);
      halves[c / Sample::kClusterElements % 2] += cluster;
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

WholeNumbers::WholeNumbers(Dtype type) : most_(type == Dtype::bf16 ? 7 : type == Dtype::f16 ? 10 : 23) {}

bool WholeNumbers::add(float v) {
  whole_ = whole_ && v == std::trunc(v);
  if (whole_ && v != 0 && std::isfinite(v)) fraction_bits_ += std::max(0, most_ - std::ilogb(v));
  return whole_;
}

Sketch::Sketch(std::uint64_t count, Dtype type, std::uint64_t reads, const Sample::Read& read)
    : sample_(count, reads, read) {
  const std::span<const float> values = sample_.values();
  double sum = 0;
  int above = 0, below = 0;
  float most = 0;
  WholeNumbers whole(type);
  for (const float v : values) {
    sum += static_cast<double>(v) * static_cast<double>(v);
    whole.add(v);
    above += v > 0, below += v < 0;
    most = std::max(most, std::abs(v));
  }
  whole_ = whole.certain();
  // All the same is what programs send that try whether sums work.
  const bool constant = std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
  one_sign_ = std::min(above, below) == 0 && std::max(above, below) >= kOneSign && !constant;
  few_ = std::min(above, below) == 0 && std::max(above, below) < kOneSign;
  norm_ = std::isfinite(sum) ? sum : 0;
  if (norm_ == 0) return;
  if (gradient() && Sample::end_of(count)) {
    // A block of neighbours at a time.
    float block[Sample::kEnd];
    std::uint64_t held = ~std::uint64_t{0};
    const auto one = [&](std::uint64_t i) {
      const std::uint64_t begin = std::min(i / Sample::kEnd * Sample::kEnd, count - Sample::kEnd);
      if (begin != held) read(held = begin, Sample::kEnd, block);
      return block[i - begin];
    };
    const End head(type, most, one), tail(type, most, [&](std::uint64_t i) { return one(count - 1 - i); });
    head_ = head.other, tail_ = tail.other, counted_ = head.counted || tail.counted;
  }
  const double least = std::log2(norm_ / static_cast<double>(values.size())) / 2 - kDeep;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double octaves =
        values[i] == 0.0f ? least : std::max(least, std::log2(std::abs(static_cast<double>(values[i]))));
    octaves_[i] = static_cast<std::int16_t>(std::lround(octaves * kSteps));
    level_ += octaves_[i] / static_cast<double>(values.size());
  }
  for (std::size_t i = 0; i < values.size(); ++i) depth_ += (octaves_[i] - level_) * (octaves_[i] - level_);
}

Likeness::Likeness(const Sketch& x, const Sketch& y) : known(x.usable() && y.usable()) {
  if (!known) return;
  const std::span<const float> a = x.sample_.values(), b = y.sample_.values();
  const std::size_t size = std::min(a.size(), b.size());
  const Products products(size, [&](std::size_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
  direction = products.way(2 / (x.norm_ + y.norm_), 0);
  signs = products.same - products.opposed > kBeyondChance * std::sqrt(products.same + products.opposed);
  alike = signs;

  const double n = static_cast<double>(size), between = n * (x.level_ - y.level_) * (x.level_ - y.level_) / 4,
               all = x.depth_ + y.depth_ + 2 * between;
  if (all <= 2 * n * (kLeastOctaves * Sketch::kSteps) * (kLeastOctaves * Sketch::kSteps)) return;
  const Products order(size, [&](std::size_t i) { return (x.octaves_[i] - x.level_) * (y.octaves_[i] - y.level_); });
  magnitudes = order.way(2 / all, between);
  alike = alike || (order.sum() > kBeyondChance * std::sqrt(order.squares) &&
                    order.sum() > kLeastCorrelation * std::sqrt(x.depth_ * y.depth_));
}

}  // namespace crimp
