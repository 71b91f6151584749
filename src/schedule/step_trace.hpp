// What the steps of a job were seen to be: when tensors were ready, and what calls took. Medians, by one rank's clock.
// CRIMP_REPORT has it, and `crimp plan` puts it through the timeline (schedule/merge_search.hpp) again.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/cost_model.hpp"
#include "schedule/merge_search.hpp"

namespace crimp {

struct StepTrace {
  // The shortest groups that there may be: a tensor, a group of Horovod's that must stay whole, or what a program
  // reduces in one call.
  struct Unit {
    std::uint32_t tensors;  // consecutive ones
    std::uint64_t bytes;
    double ready_s;  // since the step's begin: when the last one of them was ready
    bool operator==(const Unit&) const = default;
  };
  std::vector<std::string> tensors;  // in the recorded order
  std::vector<Unit> units;
  // Calls keep the program from computing: ready_s is its own time until then, without calls.
  bool stalls = false;
  std::vector<Curve> calls;  // a call's seconds by its bytes, with each codec that there is to choose from
  double step_s = 0;         // of a step as the program itself has it; 0: not measured
  std::uint64_t steps = 0;   // that were looked at

  // Of its units, for as long as the trace is there; each call takes a further extra_s. A codec with fewer than two
  // points is never chosen.
  Timeline timeline(double extra_s = 0) const;

  // First units of groups as first tensors, which is what CRIMP_MERGE=cuts= counts.
  Cuts first_tensors(const Cuts& first_units) const;

  std::string json() const;  // of names that are no UTF-8 the rest
  // Throws std::runtime_error, which says what is wrong.
  static StepTrace parse(std::string_view json);
};

// Of each size the median, and no size takes less than a smaller one: neighbours that say so are taken together. What
// is smaller than all that was measured is on the line through the two smallest. calls: a size's, in rising order.
Curve curve_of(const std::vector<std::vector<Curve::Point>>& calls);

double median(std::vector<double>);  // of none: 0

}  // namespace crimp
