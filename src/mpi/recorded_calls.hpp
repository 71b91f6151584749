// What a communicator's calls took: recorded for the report, and repeated under CRIMP_REPLAY.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collective/call_choice.hpp"
#include "collective/decisions.hpp"
#include "collective/replay.hpp"
#include "mpi/context.hpp"
#include "schedule/delay_control.hpp"

namespace crimp {

class Report;

// Not thread-safe.
class RecordedCalls {
 public:
  // Neither records nor repeats. All that is given outlives this.
  RecordedCalls(const Context& context, const std::vector<int>& world_ranks, int rank)
      : context_(context), world_ranks_(world_ranks), rank_(rank) {}
  // Collective under CRIMP_REPLAY: which communicator of the same ranks it is says rank 0.
  void open(MPI_Comm, int size, std::uint64_t number);

  bool repeats() const { return replayed_.has_value(); }
  // Of CRIMP_LADDER: decided, or repeated.
  int level(std::uint64_t bytes, DelayControl&);
  // A call names no tensors: under CRIMP_REPLAY the job's rank 0 says once what these are found by.
  void unnamed();
  // What a call takes: repeated, or what choose() says.
  ChosenParts decide(Chooser&, const CallPlan&, int ranks, const std::function<ChosenParts()>& choose);
  // Under CRIMP_REPLAY: the next call of this kind passes.
  bool passes_unseen(std::uint64_t kind) const { return replayed_->passes_unseen(kind); }
  void passed_unseen(std::uint64_t kind);  // it did, recorded or not
  void note_in(Report&) const;

 private:
  void say_what_is_missing(const CallPlan&);
  const Context& context_;
  const std::vector<int>& world_ranks_;
  int rank_;
  bool told_missing_ = false;
  bool level_missing_ = false;                // the record has no level, or none of the ladder's, for the call
  std::optional<DecisionRecorder> recorder_;  // of rank 0, where there will be a report
  std::optional<ReplayedCalls> replayed_;     // under CRIMP_REPLAY
};

}  // namespace crimp
