#include "core/time_bins.hpp"

#include <algorithm>

namespace crimp {
namespace {

constexpr double kLongest_s = 1e9;  // thirty years: what is later is no time

void add(TimeBins::Amounts& to, const TimeBins::Amounts& more, double share) {
  for (std::size_t k = 0; k < TimeBins::kinds; ++k) to[k] += share * more[k];
}

}  // namespace

void TimeBins::note(double begin_s, double end_s, const Amounts& amounts) {
  if (!(end_s >= 0 && end_s < kLongest_s && begin_s <= end_s)) return;
  if (bins_.empty()) bins_.resize(kBins);
  while (end_s >= kBins * width_s_) widen();
  begin_s = std::max(begin_s, 0.0);
  const auto bin_of = [this](double at_s) { return std::min(static_cast<std::size_t>(at_s / width_s_), kBins - 1); };
  const std::size_t first = bin_of(begin_s), last = bin_of(end_s);
  if (first == last) return add(bins_[first], amounts, 1);
  for (std::size_t b = first; b <= last; ++b) {
    const double from = std::max(begin_s, static_cast<double>(b) * width_s_);
    const double to = std::min(end_s, static_cast<double>(b + 1) * width_s_);
    add(bins_[b], amounts, (to - from) / (end_s - begin_s));
  }
}

void TimeBins::widen() {
  for (std::size_t b = 0; b < kBins / 2; ++b) {
    Amounts both = bins_[2 * b];
    add(both, bins_[2 * b + 1], 1);
    bins_[b] = both;
  }
  std::fill(bins_.begin() + kBins / 2, bins_.end(), Amounts{});
  width_s_ *= 2;
}

std::size_t TimeBins::used() const {
  std::size_t n = bins_.size();
  while (n > 0 && bins_[n - 1] == Amounts{}) --n;
  return n;
}

}  // namespace crimp
