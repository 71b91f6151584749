// CRIMP_MERGE=auto on the rank that decides: plans are run in turns, and the best measured one stays (MergeComp, arXiv
// 2103.15195, section 4.3, with a model's optimum among the plans in place of a search by probes alone).
//
//   Phase     the steps go under                                  becomes
//   trying    a turn of each candidate, in rounds. Round 0: no    watching: after the last round; the least median, or
//             plan, all in one, y=2 (the latter two with each     no plan where nothing gains 1 % on it
//             codec there is to choose from: rules.hpp),
//             buckets of 32 and 8 MiB, and what is known already.
//             Then also the plans that the timeline of what was
//             measured is best under. Who takes 1.25 times the
//             best one's time (behind rounds 0 and 1: twice) is
//             left out of later rounds. The last five rounds are
//             of the four best within a tenth of the best one, and
//             of no plan unless it was left out: the least of
//             several medians of twelve steps is luck too often
//   watching  the plan that was chosen, in windows. A first one   trying: two windows in a row are 25 % off
//             that takes what steps without a plan took is
//             followed by one without, and the better one stays
//
// Of every turn the first step is not counted, nor are steps in which something else was learnt. Not thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/cost_model.hpp"
#include "schedule/merge_search.hpp"
#include "schedule/step_trace.hpp"

namespace crimp {

class MergeTrials {
 public:
  struct Plan {
    bool holds = false;  // tensors wait for their group; else the program's own order, and the first codecs
    Grouping groups;
    bool operator==(const Plan&) const = default;
  };
  struct Candidate {
    Plan plan;
    const char* origin;           // what proposed it
    std::vector<double> steps_s;  // counted ones
    bool out = false;
    double median_s() const;
  };

  static constexpr unsigned kTurn = 4, kWindow = 50;  // steps
  static constexpr int kRounds = 4, kLastRounds = 5, kRepeats = 8;
  static constexpr std::size_t kLast = 4;  // candidates of the last rounds, besides no plan
  static constexpr double kOut = 1.25, kOutAtFirst = 2, kNear = 1.1, kGain = 0.01, kShift = 0.25;
  // The search takes about the square of them, between two steps; where a group may begin at more places, at some.
  static constexpr std::size_t kMostUnits = 2048;

  // Tensors in the recorded order; may_begin: where a group may (a group that must stay whole has one such place).
  // codecs: how many there are to choose from.
  MergeTrials(std::vector<std::uint64_t> tensor_bytes, std::vector<bool> may_begin, std::uint8_t codecs = 1);
  // A plan of an earlier run for these tensors and the median of its steps, before the first step: watched at once,
  // without candidates. It is one where steps take otherwise and plans are searched.
  void reuse(Plan plan, double step_s);

  const Plan& plan() const;  // of the next turn
  unsigned steps() const { return watching_ ? kWindow : kTurn; }
  bool wants_ready() const { return !watching_ && plan().holds && plan().groups.cuts.empty(); }

  // In the order of a step. A call of so many bytes of tensors took so long.
  void called(std::uint64_t bytes, double s);
  // A step is over; ready_s, where wants_ready(): when each tensor was ready, since the step's begin; below 0: not
  // seen. disturbed: what it took, and its calls, say nothing about the plan.
  void stepped(double s, std::span<const double> ready_s, bool disturbed);
  // The turn of steps() steps is over. True: a plan was chosen, or, behind its first window, none in its place.
  bool next();

  bool watching() const { return watching_; }
  bool doubting() const { return doubted_.has_value(); }  // watching no plan, which is not chosen yet
  // Medians of the windows that the doubt was decided by; nothing: there was none, or it is not over.
  struct Windows {
    double under_s = 0, without_s = 0;
  };
  const std::optional<Windows>& windows() const { return windows_; }
  double chosen_s() const { return reference_s_; }  // the median of a step under the chosen plan; 0: not measured yet
  const std::vector<Candidate>& candidates() const { return candidates_; }
  std::uint64_t searched_steps() const { return searched_steps_; }  // of the last search
  std::uint64_t searches() const { return searches_; }              // 0: a plan is reused
  // What the last search measured, but for the tensors' names: the one before, where this one has not measured yet.
  // Without steps: a plan is reused.
  StepTrace trace() const;

 private:
  void begin(const Plan* until_now);
  void propose(Plan plan, const char* origin);
  void propose_searched();
  StepTrace measured() const;  // of this search
  Grouping of_units(Grouping) const;
  std::optional<std::uint8_t> codec_of_call(std::uint64_t bytes) const;
  double leave_out();
  bool begin_last_rounds(double best_s);
  bool settle(double median_s);
  bool watch(double median_s);
  void choose();

  std::uint8_t codecs_;
  std::uint32_t tensors_;
  std::vector<std::uint32_t> unit_begin_;  // units: the shortest groups that are allowed
  std::vector<std::uint64_t> unit_bytes_;
  std::vector<Candidate> candidates_;
  std::size_t current_ = 0;
  int round_ = 0, repeats_ = 0, shifts_ = 0;
  bool last_ = false;                         // rounds are the last ones
  bool watching_ = false, searched_ = false;  // searched_: the timeline's plans are candidates
  Plan chosen_;
  double reference_s_ = 0, without_s_ = 0;  // without_s_: of a step without a plan, as tried; 0: not known
  // What was chosen and is held against no plan, and the median of its first window.
  std::optional<std::pair<Plan, double>> doubted_;
  std::optional<Windows> windows_;
  std::vector<double> turn_s_;
  unsigned in_turn_ = 0;
  std::map<std::pair<std::uint8_t, int>, std::vector<Curve::Point>> calls_;  // by codec and half octaves of bytes
  std::vector<std::pair<std::uint8_t, Curve::Point>> of_step_;               // of the step under way, with their codecs
  std::vector<std::vector<double>> ready_s_;                                 // of each unit
  StepTrace before_;                                                         // what the search before this one measured
  std::uint64_t searched_steps_ = 0, searches_ = 0;
};

}  // namespace crimp
