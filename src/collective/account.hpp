// What calls of one codec and of similar sizes took, and, once that is known, what they would have taken otherwise.
//
// A call takes longer than its exchange where a rank is late, or the processor is another program's, and by MPI it
// would have, too. So like is compared with like: once the candidates have been tried, a call counts with what its own
// was found to take (Trials: agreed, of the rank that came last, with chance left out), as plain MPI and the fastest
// do.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/choice.hpp"
#include "core/records.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

class Trials;

// Not thread-safe.
class Account {
 public:
  // Seconds of an element; 0: not measured.
  struct Known {
    double best_s = 0;               // by the fastest candidate
    double plain_s = 0;              // by MPI alone
    const Curve* model = nullptr;    // of MPI alone, where it was not measured; null: there is none yet
    const Trials* trials = nullptr;  // finished; null: nothing was tried. Looked at before they change only
  };
  // A call, or its part to the codec, took so long, as chosen. plain_bytes: as ChoiceQuery's. again: another part
  // counts as the call (TimeRecord::again).
  void call(const Choice&, std::uint64_t elements, std::uint64_t plain_bytes, double s, bool again = false);
  // Likewise, by MPI.
  void passed(std::uint64_t elements, std::uint64_t plain_bytes, double s, bool again = false);
  // What is known now. It holds of the calls so far of which nothing was known yet, and of those to come; what was
  // known before stays with its calls.
  void learn(const Known&);
  // All is to be learnt anew: this is known of the calls so far.
  void close(const Known&);
  // Of all calls, where this is known now.
  TimeRecord total(const Known&) const;

 private:
  struct Calls {
    std::uint64_t calls = 0, elements = 0, again = 0;
    double took_s = 0, bytes = 0;
    void add(std::uint64_t n, std::uint64_t plain_bytes, double s, bool counts_again) {
      ++calls, elements += n, again += counts_again, took_s += s, bytes += static_cast<double>(plain_bytes);
    }
  };
  // Numbers alone, which stay where trials go on.
  struct Found {
    double best_s = 0, plain_s = 0;
    std::vector<std::pair<Choice, double>> of = {};  // each candidate's
  };
  static Found found(const Known&);
  TimeRecord total(const Found&, const Curve* model) const;

  std::vector<std::pair<Choice, Calls>> open_;  // calls of which more may become known, by what was chosen
  Calls open_passed_;
  TimeRecord closed_;         // others
  double least_plain_s_ = 0;  // of an element of a call that MPI carried; 0: none was
  Found found_;               // of the open ones
};

}  // namespace crimp
