// A model knows neither how exchanges overlap with the work of ranks that share cores and links, nor a GPU. So where it
// sees several algorithms close together, or one close to plain MPI, the first calls of a codec and of a size try them
// in turn, plain MPI too, and their times decide.
#pragma once
#include <utility>
#include <vector>

#include "collective/choice.hpp"

namespace crimp {

class Transport;

// Of one codec and of calls of similar sizes. Equal on all ranks but for the times not agreed yet. Not thread-safe.
class Trials {
 public:
  static constexpr double kNear = 2;  // times the best prediction: what is tried
  static constexpr double kNearPlain =
      4;  // plain MPI is tried where it is predicted to take less than so many times the best
  static constexpr std::size_t kMost = 4;  // algorithms that are tried, the nearest
  static constexpr int kRounds = 6;        // the first is not counted: memory is touched for the first time
  // Short calls cost little, chance decides more of their times, and links may lend the first ones credit: more of them
  // are tried, in more rounds.
  static constexpr double kShort = 5e-3;
  static constexpr double kShortNear = 8;
  static constexpr int kShortRounds = 24;

  Trials() = default;  // nothing to try
  // predictions: of all that can run. Empty where the model is sure: nothing else is near its best, which is not near
  // plain MPI. plain: MPI can be tried as well.
  explicit Trials(std::vector<Choice> predictions, bool plain = false);

  // Collective at the calls after the last round. What this call takes: the next trial, else the one that was fastest,
  // else (nothing tried, or no trial succeeded) the cheapest of `predictions`.
  Choice choose(Transport&, const std::vector<Choice>& predictions, std::uint64_t count);
  // The call of the last trial took so long on this rank. Not called: it failed.
  void took(double s, std::uint64_t count) { times_.back() = s / static_cast<double>(count); }
  // Nothing is left to try; the rest depends on agreed numbers only.
  bool finished() const { return agreed_.size() == tried_.size(); }
  // What was tried, with its agreed seconds per element, once finished().
  std::vector<std::pair<Choice, double>> results() const;
  // Likewise, of the fastest, and of plain MPI; 0: nothing was tried, or succeeded.
  double best_s() const;
  double plain_s() const;

 private:
  std::vector<Choice> tried_;
  std::size_t rounds_ = kRounds;
  std::vector<double> times_;   // of each trial so far, seconds per element
  std::vector<double> agreed_;  // one for each of tried_; empty: not yet
  void agree(Transport&);
};

}  // namespace crimp
