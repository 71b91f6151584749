#include "schedule/sketch.hpp"

#include <algorithm>
#include <cmath>

namespace crimp {
namespace {

constexpr double kBeyondChance = 4;  // standard deviations

}  // namespace

Sketch::Sketch(std::uint64_t count, std::uint64_t reads, const Read& read) {
  const std::uint64_t run = kElements / reads, stride = count / reads;
  for (std::uint64_t i = 0; i < reads; ++i) {
    // Somewhere in its part of the buffer: places at equal distances would fall on one column of many matrices.
    const std::uint64_t slack = stride > run ? stride - run : 0;
    const std::uint64_t first = i * stride + ((i + 1) * 0x9e3779b97f4a7c15u >> 32) % (slack + 1);
    if (first >= count) break;
    read(first, std::min(run, count - first), values_.data() + i * run);
  }
  double sum = 0;
  for (const float v : values_) sum += static_cast<double>(v) * static_cast<double>(v);
  norm_ = std::isfinite(sum) ? sum : 0;
}

Likeness::Likeness(const Sketch& x, const Sketch& y) : known(x.usable() && y.usable()) {
  if (!known) return;
  double sum = 0, squares = 0;
  int same = 0, opposed = 0;
  for (std::uint64_t c = 0; c < Sketch::kElements; c += Sketch::kClusterElements) {
    double cluster = 0;
    for (std::uint64_t i = c; i < c + Sketch::kClusterElements; ++i) cluster += static_cast<double>(x.values_[i]) * static_cast<double>(y.values_[i]);
    sum += cluster;
    squares += cluster * cluster;
    same += cluster > 0;
    opposed += cluster < 0;
  }
  const double scale = 2 / (x.norm_ + y.norm_);
  likeness = scale * sum;
  variance = scale * scale * squares;
  alike = same - opposed > kBeyondChance * std::sqrt(same + opposed);
}

}  // namespace crimp
