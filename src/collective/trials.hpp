// A model knows neither how exchanges overlap with the work of ranks that share cores and links, nor a GPU. So where it
// sees several algorithms close together, or one close to plain MPI, the first calls of a codec and of a size try them
// in turn, plain MPI too, and their times decide. Who is far behind is not tried any further. Where it is sure the
// first calls are timed: if they take so long that plain MPI is near after all, or another algorithm, these are tried
// too.
#pragma once
#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/choice.hpp"

namespace crimp {

class Transport;

// Whether two are one candidate, whatever was predicted of it.
bool same(const Choice&, const Choice&);

// Calls whose times are comparable: of similar sizes, of one collective, and with the same candidates.
struct SizeClass {
  bool one_exchange_of_halves = false, one_exchange = false;  // one_shot can carry them
  Collective collective = Collective::allreduce;
  bool alone = false;  // MPI can
  int bits = 0;        // std::bit_width() of their elements
  std::uint64_t from_elements() const { return std::uint64_t{1} << (bits - 1); }
  auto operator<=>(const SizeClass&) const = default;
};

// Of one codec and of the calls of one class. Equal on all ranks but for the times not agreed yet. Not thread-safe.
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
  // With a communicator's early calls a class is settled within 60.
  static constexpr int kMostCalls = 56;
  // Of the best, by the typical time and by the least one: beyond it a candidate is dropped.
  static constexpr double kDrop = 1.25;

  Trials() = default;  // nothing to try
  // predictions: of all that can run; 0 s: no model knows it. plain: MPI can be tried as well. Empty where the model is
  // sure of plain MPI, or of one algorithm while MPI cannot be tried.
  explicit Trials(std::vector<Choice> predictions, bool plain = false);

  // Collective between rounds. What this call takes: the next trial, else the one that was fastest, else (nothing
  // tried, or no trial succeeded) the cheapest of `predictions`. opening_s: seconds that it takes to open the node's
  // memory, which only who gains more in this call is to do; 0: that does not count.
  Choice choose(Transport&, const std::vector<Choice>& predictions, std::uint64_t count, double opening_s = 0);
  // The call of the last trial took so long on this rank. Not called: it failed.
  void took(double s, std::uint64_t count) {
    if (s > 0) new_.back() = s / static_cast<double>(count);  // else a clock that says nothing
  }
  // Nothing is left to try; the rest depends on agreed numbers only.
  bool finished() const { return in_.empty(); }
  // The next calls, at most 15, ask whether the fastest still is: it, the second and plain MPI. Who beats it clearly
  // takes its place; where it takes another time altogether all are tried anew. False: nothing was tried.
  bool probe();
  // What was tried, with its agreed seconds per element, once finished().
  std::vector<std::pair<Choice, double>> results() const;
  static bool failed(double s);  // such a time of a candidate none of whose calls succeeded
  // Likewise, of the fastest, and of plain MPI; 0: nothing was tried, or succeeded.
  double best_s() const;
  double plain_s() const;

 private:
  struct Tried {
    Choice choice;
    std::vector<double> counted = {};  // agreed seconds per element of its calls
    double s = 0;                      // what they say, once finished
    double typical() const;            // with chance left out, which only makes calls longer
    double least() const;
  };
  std::vector<Tried> tried_;
  std::vector<std::size_t> in_;  // of tried_, ascending: what is still tried; empty: finished
  std::vector<double> new_;      // seconds per element on this rank since ranks last agreed; round by round, as in_
  int rounds_ = 0, until_ = 0;   // so many have been; that many will have been when ranks agree
  int calls_ = 0;                // tried so far
  int joined_ = 0;               // rounds before the last candidate came in
  bool with_plain_ = false;      // MPI can be tried
  bool glances_ = false;         // ranks agree after a single round
  bool probing_ = false;

  // Once finished(). nodes: false: what needs a node's memory does not count; then `predictions` has something else.
  Choice fastest_of(const std::vector<Choice>& predictions, std::uint64_t count, bool nodes) const;
  const Tried* plain_tried() const;           // null: it is not
  std::size_t fastest() const;                // of tried_
  std::size_t turn(std::size_t trial) const;  // of in_: whose is the trial of this place in new_
  void agree(Transport&);
  void drop(std::size_t most);
  void join(std::uint64_t count, const std::vector<Choice>& predictions);
  void finish();
  void finish_probe(const std::vector<Choice>& predictions);
  void go_on(std::uint64_t count, const std::vector<Choice>& predictions);
};

}  // namespace crimp
