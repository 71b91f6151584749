// Other processes' times on rank 0's clock, for the trace: two comparisons of the clocks, at the job's begin and end.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/clock.hpp"

namespace crimp {

// Nanoseconds of this process's clock since an unknown time, which is another one on every host.
inline std::int64_t nanoseconds(Clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

// Rank 0's clock minus this process's when this one showed `at`: within `offset_ns` +- `uncertainty_ns`.
struct ClockSample {
  std::int64_t at_ns = 0, offset_ns = 0, uncertainty_ns = 0;

  // This rank asked at `asked`, rank 0's clock showed `there` when it answered, and the answer came at `answered`: all
  // that is known is that rank 0 did so between the two.
  static ClockSample of(std::int64_t asked, std::int64_t there, std::int64_t answered) {
    const std::int64_t half = (answered - asked + 1) / 2;
    return {asked + half, there - (asked + half), half};
  }
  // The better of what was known and another one.
  static void keep_better(std::optional<ClockSample>& known, const ClockSample& other) {
    if (!known || other.uncertainty_ns < known->uncertainty_ns) known = other;
  }
};

// A straight line through both samples, through the better one where they are too close for that; without any this
// process's clock is rank 0's. Later times stay later.
class ClockLine {
 public:
  std::int64_t origin_ns = 0;  // of rank 0's clock: the time called 0
  std::optional<ClockSample> first, last;

  std::int64_t at(Clock::time_point time) const {
    const std::int64_t ns = nanoseconds(time);
    return std::max<std::int64_t>(0, ns + offset(ns) - origin_ns);
  }
  std::int64_t offset_ns() const { return offset(first ? first->at_ns : 0); }  // at the job's begin
  // How far at() may be off while clocks drift evenly; else what both samples leave.
  std::int64_t uncertainty_ns() const {
    if (!first || !last) return first ? first->uncertainty_ns : last ? last->uncertainty_ns : 0;
    const std::int64_t worse = std::max(first->uncertainty_ns, last->uncertainty_ns);
    return inclined() ? worse : worse + std::abs(last->offset_ns - first->offset_ns);
  }
  // Seconds per second; 0: unknown.
  double drift() const {
    if (!inclined()) return 0;
    return static_cast<double>(last->offset_ns - first->offset_ns) / static_cast<double>(last->at_ns - first->at_ns);
  }

 private:
  // No clock drifts by a thousandth: where the samples say so it is their uncertainty.
  bool inclined() const {
    return first && last && last->at_ns > first->at_ns &&
           std::abs(last->offset_ns - first->offset_ns) <= (last->at_ns - first->at_ns) / 1000;
  }
  std::int64_t offset(std::int64_t ns) const {
    if (inclined())
      return first->offset_ns + static_cast<std::int64_t>(drift() * static_cast<double>(ns - first->at_ns));
    if (!first || !last) return first ? first->offset_ns : last ? last->offset_ns : 0;
    return (first->uncertainty_ns <= last->uncertainty_ns ? *first : *last).offset_ns;
  }
};

}  // namespace crimp
