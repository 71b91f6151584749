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
  // This is known of the calls since the last close().
  void close(const Known&);
  // Of all calls; `known` of those since the last close().
  TimeRecord total(const Known& known) const;

 private:
  TimeRecord open_, closed_;
  double open_bytes_ = 0;
};

}  // namespace crimp
