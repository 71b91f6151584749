// CRIMP_MERGE=auto on one communicator: steps are counted by what was reduced, which is the same on all ranks; the
// leader times them and decides (schedule/merge_trials.hpp), and its plans reach all ranks before the same AND. The
// first one brings the order of the tensors as well: that of CRIMP_PLAN_FILE, where a plan of it is used. Under
// CRIMP_REPLAY the leader tells what is recorded.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "horovod/record.hpp"
#include "schedule/merge_trials.hpp"
#include "schedule/plan_file.hpp"
#include "schedule/plan_turns.hpp"

namespace crimp::horovod {

// What this rank decided in the job that is repeated, for all searches of the process: who begins later goes on behind.
struct RecordedPlans {
  explicit RecordedPlans(const std::vector<PlanTurns>& of) : plans(of), used(of.size()) {}
  const std::vector<PlanTurns>& plans;  // stay the caller's
  std::vector<bool> used;
};

struct Leader {
  bool here = false;  // this rank decides
  // Collective, from the leader to all. Throws what ends the call.
  std::function<void(std::span<std::uint8_t>)> broadcast;
  // How often something has been learnt in calls, as of algorithms: such steps tell nothing about a plan.
  std::function<std::uint64_t()> learnt = [] { return std::uint64_t{0}; };
  std::function<void(const SearchRecord&)> chosen = [](const SearchRecord&) {};  // a plan was, or is reused
  // CRIMP_PLAN_FILE, the leader's alone; null: none. key: of its plans, but for the tensors.
  std::shared_ptr<const PlanFile> file = nullptr;
  SavedPlan key = {};
  std::function<void(const std::string&)> warn = [](const std::string&) {};  // of the file, and of what is recorded
  // Tensors have left a plan that is not searched, of so many. Trials see by themselves what a plan without them takes.
  std::function<void(std::size_t unmerged, std::size_t tensors)> late = [](std::size_t, std::size_t) {};
  std::uint8_t codecs = 1;                            // that rules leave to choose from, at most
  std::shared_ptr<RecordedPlans> recorded = nullptr;  // null: no job is repeated
};

// Where groups may begin among tensors in this order: not in the middle of a group of Horovod's, nor between two parts
// of it.
std::vector<bool> may_begin(const std::vector<NamedTensor>&);

class Search {
 public:
  explicit Search(Leader leader) : leader_(std::move(leader)) {}

  // These tensors are reduced in every step.
  void begin(std::vector<NamedTensor> tensors);
  void resume();  // at the end of a step, where not all that was reduced has been told
  void reduced(std::size_t tensor);
  bool was_reduced(std::size_t tensor) const { return reduced_[tensor]; }  // in this step

  struct Told {
    MergeTrials::Plan plan;
    std::vector<std::uint32_t> order;  // not empty: tensor i is from now on the one that was order[i]
  };
  // Before an AND. Collective where a turn of steps is over, and then the plan from now on. time() is the leader's
  // only.
  std::optional<Told> plan(Clock::time_point (*time)());
  // On the leader, of this step.
  bool wants_ready() const { return trials_ && timed_ && trials_->wants_ready(); }
  void ready(std::size_t tensor, Clock::time_point);
  void called(std::uint64_t bytes, double s);

  std::optional<SearchRecord> record() const;  // the leader's
  const std::vector<PlanTurns>& turns() const {
    return turns_;
  }  // likewise: what it told, of one set of tensors after another

 private:
  Leader leader_;
  std::vector<bool> reduced_;
  std::size_t left_ = 0;     // to be reduced in this step
  unsigned steps_left_ = 0;  // of this turn
  bool step_ended_ = false;
  std::unique_ptr<MergeTrials> trials_;  // the leader's; gone where it had no memory for them: the last plan stays
  bool timed_ = false;                   // step_begin_ is known
  Clock::time_point step_begin_;
  std::uint64_t learnt_ = 0;
  std::vector<double> ready_s_;
  std::vector<std::uint8_t> message_;  // the last one
  std::vector<NamedTensor> tensors_;   // the leader's, in the order of its trials
  std::vector<std::uint32_t> order_;   // of the first message; empty once it was told
  std::vector<PlanTurns> turns_;
  bool notes_ = false;                   // the last of turns_ is of these tensors
  MergeTrials::Plan plan_;               // where notes_: of this step
  const PlanTurns* repeated_ = nullptr;  // in place of trials
  std::size_t turn_ = 0;
  std::uint64_t turn_steps_ = 0;  // of this turn, that were told
  void begin_trials();
  void note_turns();
  const PlanTurns* recorded_plans();
  void take_order(const std::vector<std::string>& names);
  void repeat();
  void compose(const MergeTrials::Plan&, unsigned steps);
  std::optional<SavedPlan> earlier_plan();
  void save(const SearchRecord&);
  void decide();
  void time_step(Clock::time_point now);
  std::vector<std::uint32_t> heard_order();
};

}  // namespace crimp::horovod
