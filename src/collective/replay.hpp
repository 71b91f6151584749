// CRIMP_REPLAY: the decisions of a job, out of the report that it wrote, for one that repeats them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/decisions.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"
#include "schedule/plan_turns.hpp"

namespace crimp {

// A file's content; immutable.
class Replay {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

  // Of a regular file. ranks: this job's. Throws Error{option_invalid}, which says what is wrong with the file and what
  // to do. What is odd with it, or with these settings beside those of its job, is added to `warnings`.
  static Replay read(const std::string& file, const Settings&, int ranks, std::vector<std::string>& warnings);
  // Likewise of the file's text.
  static Replay parse(const std::string& file, const std::string& text, const Settings&, int ranks,
                      std::vector<std::string>& warnings);

  // Null: the record does not have it.
  const DecisionRecord* find(const std::string& ranks, std::uint64_t number) const;
  // Of Horovod's tensors (CRIMP_MERGE=auto), which this rank of MPI_COMM_WORLD decided, in its order.
  const std::vector<PlanTurns>& plans(int rank) const {
    static const std::vector<PlanTurns> none;
    const auto at = plans_.find(rank);
    return at == plans_.end() ? none : at->second;
  }
  const std::string& digest() const { return digest_; }  // of the text
  // CRIMP_ALGORITHM of the recorded job, or of the one that it repeated; empty: the file does not say.
  const std::string& algorithm() const { return algorithm_; }
  // What a replay's report has, so that a replay of it finds that; where the file says it.
  static constexpr const char* kRepeated = "repeated";
  std::string repeated_json() const;

 private:
  std::map<std::pair<std::string, std::uint64_t>, DecisionRecord> of_;
  std::map<int, std::vector<PlanTurns>> plans_;
  std::string digest_, algorithm_;
};

// Where one communicator's calls are in a record. Only making it allocates. Not thread-safe; equal on all ranks that
// count the same calls.
class ReplayedCalls {
 public:
  // The record stays the caller's; null: it has none of these calls.
  explicit ReplayedCalls(const DecisionRecord*);

  using Repeat = Report::Repeat;
  struct Call {
    const CallDecision* decision;  // null: missing
    Repeat how;
  };
  // What the next call of this kind (CallPlan::kind_digest), or class (DelayControl::class_of()), takes.
  Call call(std::uint64_t kind);
  bool passes_unseen(std::uint64_t kind) const;                     // it does; call() has not been asked yet
  std::optional<int> level(std::uint64_t class_bytes, int levels);  // of so many; none: missing

 private:
  template <class Decision>
  struct Cursor {
    std::uint64_t key;
    const DecisionRuns<Decision>* of;
    std::uint64_t calls = 0;
    std::size_t run = 0;
  };
  std::vector<Cursor<CallDecision>> kinds_;  // by key
  std::vector<Cursor<int>> levels_;
};

}  // namespace crimp
