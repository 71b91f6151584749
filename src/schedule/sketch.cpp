#include "schedule/sketch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

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

// The logarithm to base 2 of a number that is not negative, to within 1e-4, because a sketch keeps 64ths; of 0 less
// than any float32's.
double octaves_of(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<std::int32_t>(bits >> 52 & 0x7ff) - 1023;
  const double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);  // 1 to 2
  const double t = (m - 1) / (m + 1), squared = t * t;
  // ln m = 2 atanh t
  return exponent + 2 * std::numbers::log2e * t * (1 + squared * (1.0 / 3 + squared * (1.0 / 5 + squared / 7)));
}

// One number of each cluster of a sample's elements; behind the last cluster zeros.
using OfClusters = std::array<double, Sample::kClusters>;

// Sums over clusters of products of two vectors' elements. In lanes, because a period is proved by some ten thousand
// comparisons.
struct Products {
  double halves[2] = {}, squares = 0;
  int same = 0, opposed = 0;
  explicit Products(const OfClusters& of) {
    constexpr std::size_t kLanes = 8;
    double sums[kLanes] = {}, squared[kLanes] = {}, above[kLanes] = {}, below[kLanes] = {};
    for (std::size_t c = 0; c < of.size(); c += kLanes)
      for (std::size_t i = 0; i < kLanes; ++i) {
        sums[i] += of[c + i];
        squared[i] += of[c + i] * of[c + i];
        above[i] += of[c + i] > 0 ? 1.0 : 0.0;
        below[i] += of[c + i] < 0 ? 1.0 : 0.0;
      }
    for (std::size_t i = 0; i < kLanes; ++i) {
      halves[i % 2] += sums[i], squares += squared[i];
      same += static_cast<int>(above[i]), opposed += static_cast<int>(below[i]);
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
    const double octaves = kSteps * std::max(least, octaves_of(std::abs(static_cast<double>(values[i]))));
    octaves_[i] = static_cast<std::int16_t>(octaves + (octaves < 0 ? -0.5 : 0.5));
  }
  std::int64_t all = 0, squares = 0;
  for (std::size_t c = 0; c < sums_.size(); ++c) {  // behind the last value are zeros
    const std::int16_t* of = &octaves_[c * Sample::kClusterElements];
    sums_[c] = of[0] + of[1] + of[2] + of[3];
    all += sums_[c];
    squares += of[0] * of[0] + of[1] * of[1] + of[2] * of[2] + of[3] * of[3];
  }
  level_ = static_cast<double>(all) / static_cast<double>(values.size());
  depth_ = std::max(0.0, static_cast<double>(squares) - level_ * static_cast<double>(all));
}

Likeness::Likeness(const Sketch& x, const Sketch& y) : known(x.usable() && y.usable()) {
  if (!known) return;
  constexpr std::size_t kEach = Sample::kClusterElements;
  const std::size_t size = std::min(x.sample_.values().size(), y.sample_.values().size());
  const float *a = x.sample_.values().data(), *b = y.sample_.values().data();
  OfClusters of;  // behind the last value there are zeros
  for (std::size_t c = 0; c < of.size(); ++c) {
    const std::size_t i = c * kEach;
    const auto product = [&](std::size_t at) { return static_cast<double>(a[at]) * static_cast<double>(b[at]); };
    of[c] = (product(i) + product(i + 2)) + (product(i + 1) + product(i + 3));
  }
  const Products products(of);
  direction = products.way(2 / (x.norm_ + y.norm_), 0);
  signs = products.same - products.opposed > kBeyondChance * std::sqrt(products.same + products.opposed);
  alike = signs;

  const double n = static_cast<double>(size), between = n * (x.level_ - y.level_) * (x.level_ - y.level_) / 4,
               all = x.depth_ + y.depth_ + 2 * between;
  if (all <= 2 * n * (kLeastOctaves * Sketch::kSteps) * (kLeastOctaves * Sketch::kSteps)) return;
  // Of (x - level) (y - level); the products of octaves are whole numbers.
  for (std::size_t c = 0; c < of.size(); ++c) {
    const std::size_t i = c * kEach;
    const auto product = [&](std::size_t at) { return int{x.octaves_[at]} * y.octaves_[at]; };
    of[c] = (product(i) + product(i + 2)) + (product(i + 1) + product(i + 3)) - x.level_ * y.sums_[c] -
            y.level_ * x.sums_[c] + kEach * x.level_ * y.level_;
  }
  for (std::size_t c = size / kEach; c < of.size(); ++c)
    of[c] -= static_cast<double>(kEach - (c == size / kEach ? size % kEach : 0)) * x.level_ * y.level_;
  const Products order(of);
  magnitudes = order.way(2 / all, between);
  // Where all are of one size their order says nothing.
  if (std::min(x.depth_, y.depth_) <= n) return;
  alike = alike || (order.sum() > kBeyondChance * std::sqrt(order.squares) &&
                    order.sum() > kLeastCorrelation * std::sqrt(x.depth_ * y.depth_));
}

}  // namespace crimp
