// What calls of one codec and of similar sizes took, and, once that is known, what they would have taken otherwise.
#pragma once
#include <cstdint>

#include "core/report.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// Not thread-safe.
class Account {
 public:
  // A call, or its part to the codec, took so long. plain_bytes: as ChoiceQuery's.
  void call(std::uint64_t elements, std::uint64_t plain_bytes, double s) {
    ++open_.calls;
    open_.elements += elements;
    open_.took_s += s;
    open_bytes_ += static_cast<double>(plain_bytes);
  }
  // Seconds of an element; 0: not measured.
  struct Known {
    double best_s = 0;             // by the fastest candidate
    double plain_s = 0;            // by MPI alone
    const Curve* model = nullptr;  // of MPI alone, where it was not measured; null: there is none yet
  };
  // What is known now. It holds of the calls so far of which nothing was known yet, and of those to come; what was
  // known before stays with its calls.
  void learn(const Known&);
  // All is to be learnt anew: this is known of the calls so far.
  void close(const Known&);
  // Of all calls, where this is known now.
  TimeRecord total(const Known&) const;

 private:
  const Known& of_open(const Known&) const;
  TimeRecord open_, closed_;  // calls of which more may become known, and others
  double open_bytes_ = 0;
  Known known_;  // of the open ones
};

}  // namespace crimp
