// What following Horovod's negotiation gave on one communicator, or on several together.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedule/plan_turns.hpp"
#include "schedule/step_trace.hpp"

namespace crimp::horovod {

// Why the tensors of a data call are not known. One list makes the enum, the keys of the report and the texts of the
// summary.
#define CRIMP_UNEXPLAINED(ITEM)                                       \
  ITEM(nothing_expected, "after all that was agreed")                 \
  ITEM(list_unreadable, "the ResponseList was not understood")        \
  ITEM(cache_differs, "a ready bit stands for no tensor known here")  \
  ITEM(count_differs, "another count than the expected tensors have") \
  ITEM(type_differs, "another type than the expected tensors have")

// What ended the holding of ready tensors (gate.hpp).
#define CRIMP_RELEASES(ITEM)                                            \
  ITEM(complete, "the group was complete")                              \
  ITEM(deadline, "CRIMP_HOLD_MS was over")                              \
  ITEM(shutdown, "Horovod is shut down")                                \
  ITEM(uncached, "new tensors are negotiated, or this rank has joined") \
  ITEM(invalid, "changed or stalled tensors are negotiated again")

#define CRIMP_ITEM(name, text) name,
enum class Unexplained : std::size_t { CRIMP_UNEXPLAINED(CRIMP_ITEM) count };
enum class Release : std::size_t { CRIMP_RELEASES(CRIMP_ITEM) count };
#undef CRIMP_ITEM

// What CRIMP_MERGE=auto has come to, on the rank that decides.
struct SearchRecord {
  struct Tried {
    MergeTrials::Plan plan;
    std::string origin;
    double step_s = 0;  // median
    std::size_t steps = 0;
  };
  bool settled = false;
  std::uint64_t searches = 0, steps = 0;  // 0: the plan is CRIMP_PLAN_FILE's; steps: of the last search
  std::size_t tensors = 0;
  Tried chosen;
  std::optional<MergeTrials::Windows> windows;  // that a doubt of the chosen plan was decided by
  std::vector<Tried> tried;                     // the first without a plan
  StepTrace trace;                              // of the last search; of no steps: there is none
  std::string line() const;                     // for people, once settled
};

struct Record {
  std::uint64_t explained = 0, heals = 0;  // data calls; how often one was explained again after one that was not
  std::array<std::uint64_t, static_cast<std::size_t>(Unexplained::count)> unexplained{};
  // Under a merge plan: calls of known tensors and how many those were, tensors of each group, what ended holding.
  std::uint64_t merged_calls = 0, merged_tensors = 0;
  std::vector<std::size_t> groups;
  std::size_t unmerged = 0;  // of the groups' tensors, in the end on this rank: they came too late too often
  std::array<std::uint64_t, static_cast<std::size_t>(Release::count)> releases{};
  std::optional<SearchRecord> search;
  std::vector<PlanTurns> plans;  // of the steps, where plans are searched; one communicator after another

  std::uint64_t unexplained_calls() const;
  void add(const Record&);  // of another communicator; plan and search with more tensors stay

  // For Report::section().
  std::string json() const;
  std::string clause() const;
};

}  // namespace crimp::horovod
