// CRIMP_MERGE=auto on one communicator: steps are counted by what was reduced, which is the same on all ranks; the
// leader times them and decides (schedule/merge_trials.hpp), and its plans reach all ranks before the same AND.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "horovod/record.hpp"
#include "schedule/merge_trials.hpp"

namespace crimp::horovod {

struct Leader {
  bool here = false;  // this rank decides
  // Collective, from the leader to all. Throws what ends the call.
  std::function<void(std::span<std::uint8_t>)> broadcast;
  // How often something has been learnt in calls, as of algorithms: such steps tell nothing about a plan.
  std::function<std::uint64_t()> learnt = [] { return std::uint64_t{0}; };
  std::function<void(const SearchRecord&)> chosen = [](const SearchRecord&) {};  // a plan was
};

class Search {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Search(Leader leader) : leader_(std::move(leader)) {}

  // These tensors are reduced in every step; may_begin: where a group may.
  void begin(const std::vector<std::uint64_t>& tensor_bytes, std::vector<bool> may_begin);
  void resume();  // at the end of a step, where not all that was reduced has been told
  void reduced(std::size_t tensor);
  bool was_reduced(std::size_t tensor) const { return reduced_[tensor]; }  // in this step

  // Before an AND. Collective where a turn of steps is over, and then the plan from now on. time() is the leader's
  // only.
  std::optional<MergeTrials::Plan> plan(Clock::time_point (*time)());
  // On the leader, of this step.
  bool wants_ready() const { return trials_ && timed_ && trials_->wants_ready(); }
  void ready(std::size_t tensor, Clock::time_point);
  void called(std::uint64_t bytes, double s);

  std::optional<SearchRecord> record() const;  // the leader's

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
  void time_step(Clock::time_point now);
};

}  // namespace crimp::horovod
