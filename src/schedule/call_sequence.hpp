// Which tensor a call carries, on one communicator, where nobody names it.
//
// Counts and types in order are not enough: equal tensors would share one residual, and error feedback would add what
// one tensor lost to another. So calls of one count and type are a Series, and a tensor is what its values prove it to
// be (PeriodEvidence):
//   - calls at lag p of a series must resemble each other (Likeness: in direction or in magnitudes) far more than
//     chance allows, over all ranks together and evenly, at all multiples of p: likeness now and then is a random
//     order's, and what makes it so shows in both halves of the sketches alike;
//   - no other lag may fit clearly better, nor its multiples stand out, and none that addresses rule out counts (where
//     at another lag all buffers repeat on all ranks);
//   - the evidence must cover p calls `periods` times, as far as the last PeriodEvidence::kKept calls can, and
//     kMinMatches pairs of calls, or more where magnitudes are alike in part only (covered()). A series of one tensor
//     is known earlier, from kFewMatches pairs on, where each of its first calls is like another in direction
//     (linked()).
// Calls whose values no gradient has on some rank (Sketch::gradient()) are of no series: counts, indices and sums of
// squares come again, too. Values at a tensor's ends that are of another kind than the rest (a loss, a count of samples
// behind a gradient) are summed exactly.
//
// Then call n is tensor n modulo p. A period that is a multiple of the true one splits a tensor's residual in several,
// which is harmless; one that is too short cannot pass. What stays ambiguous is unknown. A call that does not look like
// its tensor is foreign: the rank that sees it says so in its header (kFlagForeign), all ranks send it through MPI and
// the tensor waits for its own next call, with its residual. After two in a row the second one is held against all
// tensors, whose turn it may have been. Four foreign calls among sixteen withdraw a period, and the next proof asks for
// more; with every kForgive good calls for less again.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.hpp"
#include "schedule/layout.hpp"
#include "schedule/period_evidence.hpp"

namespace crimp {

// Not thread-safe: one communicator's calls are ordered. Every member is called on all ranks alike.
class CallSequence {
 public:
  static constexpr std::uint32_t kForgive = 256;
  // Sketches of all series. Beyond kMostSketches kEnough of each known series stay, those that came once and not again
  // in half so many calls, and of others the least recently used half of what has more than kEnough and is not known.
  // Where calls have so many counts that all this leaves more than kMostSketchesEver, half of the known ones go, too.
  static constexpr std::size_t kMostSketches = 8192, kMostSketchesEver = 4 * kMostSketches, kEnough = 16;
  static constexpr const char* kKeyPrefix = "#";  // of all its keys
  // How much larger or smaller than in its last call the largest value of a tensor may be. Where the values are in no
  // way half as alike as the tensor's usually are; where these no longer are alike at all, and the values are not
  // (a gradient that has become noise, and the weights in its buffer).
  static constexpr double kProportion = 32, kProportionUnlike = 4, kProportionUnrelated = 8;

  // periods: CRIMP_PERIODS. forget: told that no key that begins so will come again.
  CallSequence(int periods, std::function<void(std::string_view prefix)> forget)
      : periods_(static_cast<std::uint32_t>(periods)), forget_(std::move(forget)) {}

  // Tensors matter for what lies at their ends alone. A series is then given up where none of its tensors has anything
  // there, or they are not known after kBriefly calls.
  void set_only_ends(bool only) { only_ends_ = only; }
  static constexpr std::uint64_t kBriefly = 64;
  bool given_up(std::uint64_t count, Dtype) const noexcept;  // such calls; they are not begun any more

  struct Call {
    std::shared_ptr<const Layout> layout;  // periodic or unknown; equal on all ranks
    bool foreign = false;                  // not on all ranks alike: the values here are not the tensor's
    bool apart = false;                    // likewise: no gradient has them
    // Of calls of its count and type, on all ranks alike: they were known, and are not what they were taken for; so
    // many of them have shown no tensor.
    bool withdrawn = false, ambiguous = false;
  };
  // Throws std::bad_alloc as if it had not been called. ends: whether those of a tensor may be summed exactly.
  Call begin(std::uint64_t count, Dtype, const SketchedCall&, bool ends = true);
  // Of the call under way: no gradient has this rank's values, whatever their sketch says. Where no rank is asked,
  // because all leave the call to MPI, they are then no evidence.
  void take_for_none() { apart_ = true; }
  // The largest magnitude in the buffer, where it has been looked for; Inf where it is not finite, which says nothing
  // of whose it is.
  enum class Proportion {
    usual,
    outlier,  // far from the last call's, in values that are alike otherwise: the tensor's own call, but nothing for
              // error feedback
    foreign,  // far from it, and not alike
  };
  Proportion magnitude(double largest);
  // A call whose values nobody looks at, in place of begin() and end(): of a tensor that is known, whose turn it then
  // was. False: it is of none, and nothing has changed.
  bool skip(std::uint64_t count, Dtype) noexcept;
  enum class Outcome {
    tensor,   // it was what begin() took it for, or unknown
    foreign,  // a rank said that it was not
    apart,    // a rank said that no gradient has such values
    failed,   // the ranks were not in the same call: as if it had not been
  };
  // The same outcome on all ranks. Collective where evidence is to be gathered, which is a function of the calls so
  // far; not where it failed.
  void end(Outcome, const SumOverRanks&);

  struct Count {
    std::uint64_t tensors = 0;                 // now known by their values
    std::uint64_t ambiguous = 0;               // series of kManyCalls or more calls without a period
    std::uint64_t foreign = 0, withdrawn = 0;  // calls; periods
    std::uint64_t forgotten = 0;               // tensors that were known, for room or because they came no more
  };
  static constexpr std::uint64_t kManyCalls = 200;
  // From then on a series without a period is searched for one again when its calls have so many times the bytes that
  // the last search had: below 6000 float32 elements later than after a quarter more calls.
  static constexpr std::uint64_t kWorthSearch = 50;
  Count count() const;  // looks at all series

 private:
  struct Tensor {
    bool known = false;               // its own calls have proved it, on all ranks together
    bool linked = false;              // by PeriodEvidence::linked()
    SketchedCall last;                // of its last call on this rank
    bool steady = false;              // its buffers have always been the same on this rank
    bool head = false, tail = false;  // Sketch::head(), on all ranks alike, when it became known
    struct Usual {
      double mean = -2, spread = 0;  // no likeness is less
    };
    Usual usual[Evidence::kWayCount];  // likeness of its calls on this rank, in the ways that have proved it
    double largest = 0, outlier = 0;   // magnitude of its last call that was in proportion; of an outlier just now,
                                       // which may be the new usual
  };
  struct Series {
    std::uint32_t id = 0, generation = 0, period = 0, phase = 0, backoff = 1, foreign = 0, uneven = 0;
    std::uint32_t unseen = 0;               // calls since the last one in the history, less whole turns
    bool proved[Evidence::kWayCount] = {};  // the ways in which the period was
    bool adjacent = false;                  // two calls of it have followed each other without another's between them
    bool apart = false;                     // a call of its count and type was
    bool apart_here = false;                // for this rank, while no rank was asked
    bool given_up = false;
    // Since the last withdrawal, newest last; between begin() and end() one more, for the call under way.
    std::deque<SketchedCall> history;
    std::vector<Tensor> tensors;
    std::uint64_t calls = 0;  // since the withdrawal
    std::uint64_t next = 0;   // the call that gathers evidence
    std::uint64_t good = 0;   // since the proof
    std::uint64_t used = 0;   // the last one's now_
    bool withdrawn() const { return !period && generation > 0; }
    bool ambiguous() const { return !period && calls >= kManyCalls; }
  };
  void gather(Series&, const SumOverRanks&);
  void learn(Series&, std::uint32_t period, const SumOverRanks&);
  bool doubtful(const Tensor&, const SketchedCall&) const;
  static double proportion(const Tensor&, const Likeness& to_last);
  void find_turn(Series&, const SumOverRanks&);
  void place_unseen(Series&);
  void place(Series&, const Tensor&);
  void give_up(Series&);
  void withdraw(Series&);
  void forget_calls(Series&);
  void record(Series&, const SketchedCall&);
  void make_room();
  std::uint64_t middle_use() const;
  template <class May>
  void forget_unused(std::uint64_t since, May may);
  std::string prefix(const Series&) const;
  void forget_residuals(const Series&) const;
  std::shared_ptr<const Layout> layout(const Series&, std::uint64_t count, bool ends) const;

  static std::uint64_t signature(std::uint64_t count, Dtype type) {
    return count * 8 + static_cast<std::uint64_t>(type);
  }
  // Of such a call's buffer.
  static std::uint64_t bytes_of(std::uint64_t signature) {
    return std::max<std::uint64_t>(1, signature / 8) * size_of(static_cast<Dtype>(signature % 8));
  }

  std::uint32_t periods_;
  std::function<void(std::string_view)> forget_;
  bool only_ends_ = false;
  std::map<std::uint64_t, Series> series_;  // by count and type
  std::size_t kept_ = 0;                    // sketches in all histories
  std::size_t most_ = kMostSketches;        // make_room() beyond
  std::uint32_t next_id_ = 0;
  std::uint64_t now_ = 0 /* calls so far */, foreign_ = 0, withdrawn_ = 0, forgotten_ = 0;
  // The call under way; what begin() has changed, as it was before.
  std::uint64_t signature_ = 0, signature_before_ = 0;
  bool made_ = false, adjacent_before_ = false;
  SketchedCall values_;
  bool apart_ = false;
  double largest_ = 0;
  bool alike_ = false, outlier_ = false;  // the values and those of the tensor's last call
  double proportion_ = kProportion;
};

}  // namespace crimp
