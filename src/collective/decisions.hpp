// What clocks decide, call by call: CRIMP_ALGORITHM=auto's algorithms and passes, CRIMP_CONTROL's levels. Recorded for
// the report; CRIMP_REPLAY repeats it (collective/replay.hpp).
//
// Of each communicator and each kind of call (CallPlan::kind) the changes are kept: "from the n-th call of this kind
// on". Calls are counted alike by all ranks, those that fail as well.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collective/choice.hpp"
#include "core/pass_reason.hpp"
#include "core/types.hpp"

namespace crimp {

struct CallPlan;
struct ChosenParts;

struct CallDecision {
  std::optional<PassReason> pass = {};  // the whole call is MPI's; then there are no parts
  bool unseen = false;                  // it passes, as others have shown, without a look at its values
  std::vector<Carriage> parts = {};     // PlannedPart::as_it_runs()
  bool operator==(const CallDecision&) const = default;
};

template <class Decision>
struct DecisionRuns {
  struct Run {
    std::uint64_t from;  // this call, counted from 1, has it, and those after it
    Decision decision;
  };
  std::vector<Run> runs;    // ascending
  std::uint64_t calls = 0;  // so many were counted
  std::uint64_t ends = 0;   // what calls after this one changed is not kept; 0: all is
};

struct DecisionRecord {
  struct Kind {
    std::string text;
    DecisionRuns<CallDecision> of;
  };
  std::string ranks;         // of MPI_COMM_WORLD, ranks_text()
  std::uint64_t number = 0;  // which communicator of these ranks, in the order of their first calls on rank 0
  std::map<std::uint64_t, Kind> kinds;                // by digest of the text
  std::map<std::uint64_t, DecisionRuns<int>> levels;  // of CRIMP_LADDER, by DelayControl::class_of()
  bool incomplete = false;                            // a rank lacked memory to note a change
  std::string json() const;
};

// "0-3,8,9": in the communicator's order.
std::string ranks_text(const std::vector<int>& world_ranks);

// Writes a communicator's record. Not thread-safe. A call whose decision is that of the last one allocates nothing.
// What lacks memory throws std::bad_alloc after the record has been marked as incomplete.
class DecisionRecorder {
 public:
  static constexpr std::size_t kMostRuns = 65536;  // that are kept, of all kinds and classes together

  DecisionRecorder(std::string ranks, std::uint64_t number) {
    record_.ranks = std::move(ranks), record_.number = number;
  }
  // A call of this class has this level.
  void level(std::uint64_t class_bytes, int level);
  // A call begins; decided() says what it takes. Not called: it failed before.
  void begin(const CallPlan&);
  void decided(const CallPlan&, const ChosenParts&);
  // In place of both: the call passes unseen, because plain MPI is faster.
  void unseen(std::uint64_t kind_digest);
  const DecisionRecord& record() const { return record_; }

 private:
  template <class Decision, class Same, class Make>
  void note(DecisionRuns<Decision>&, Same same, Make make);
  DecisionRecord record_;
  std::size_t runs_ = 0;
  DecisionRuns<CallDecision>* call_ = nullptr;  // of the call that began; null: there was no memory for it
};

}  // namespace crimp
