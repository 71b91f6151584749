// Times of repeated work.
#pragma once
#include <algorithm>
#include <vector>

#include "core/clock.hpp"

namespace crimp::tools {

template <class Work>
double timed(Work&& work) {
  const auto begin = Clock::now();
  work();
  return seconds(Clock::now() - begin);
}

inline double median(std::vector<double> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  return n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
}

}  // namespace crimp::tools
