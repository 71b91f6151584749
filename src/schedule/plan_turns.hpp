// Which merge plans the steps of a job had under CRIMP_MERGE=auto: for its report, and for a job that repeats it
// (CRIMP_REPLAY).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/merge_trials.hpp"

namespace crimp {

// Of one set of tensors on one communicator, from the step on in which plans were first possible.
struct PlanTurns {
  static constexpr std::size_t kMost = 16384;    // turns that are kept
  static constexpr std::size_t kMostSets = 256;  // sets of tensors that a communicator keeps them of
  struct Turn {
    MergeTrials::Plan plan;
    std::uint64_t steps = 0;
    bool operator==(const Turn&) const = default;
  };
  std::vector<std::string> tensors;  // in the order that cuts count in
  std::vector<Turn> turns;           // no two neighbours have the same plan
  bool truncated = false;            // later turns are not kept
  bool operator==(const PlanTurns&) const = default;

  void add(const MergeTrials::Plan&, unsigned steps) noexcept;
  bool is_of(std::vector<std::string> names) const;  // these tensors, in whatever order

  std::string json() const;  // of names that are no UTF-8 the rest, and then they match none
  // Throws std::runtime_error, which says what is wrong.
  static PlanTurns parse(std::string_view json);
};

}  // namespace crimp
