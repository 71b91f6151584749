// Which algorithm a call takes, or plain MPI where that is predicted to be faster. A model is measured at a communicator's first compressed
// call and agreed by all ranks: every number is the slowest rank's, exchanged before it is used. Where it sees a near thing, trials decide.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/algorithms.hpp"
#include "comm/choice.hpp"
#include "comm/measure.hpp"
#include "comm/trials.hpp"

namespace crimp {

// All that can run the codec within the query's quality, with predictions; where none of them has a cost function, the first one without. Below infinity an
// algorithm that adds an error also gives way to sums of integers where these run the codec.
std::vector<Choice> candidates(const NetworkModel&, const HierarchyModel* hierarchy, const CodecCost&, const ChoiceQuery&);
// The cheapest of them. The same function makes the tables of `crimp model`.
Choice cheapest(const NetworkModel&, const HierarchyModel* hierarchy, const CodecCost&, const ChoiceQuery&);
// What one algorithm would take.
double predicted(const AlgorithmEntry&, const NetworkModel&, const CodecCost&, const ChoiceQuery&);

// A communicator's own. Not thread-safe.
class Chooser {
 public:
  // forced: as CRIMP_ALGORITHM; "auto": the cheapest.
  explicit Chooser(const std::string& forced) : forced_(forced) {}
  // Collective where something must be measured, which is a function of the calls so far. `time` gives this rank's cost of the codec on values
  // of the call, on demand.
  Choice choose(Transport&, const ChoiceQuery&, const PlainAllreduce&, const std::function<CodecCost()>& time);
  // How long the call took that choose() made this choice for. Not called: it failed.
  void took(const ChoiceQuery&, const Choice&, double s);
  void force(const std::string& algorithm) { forced_ = algorithm; }
  // Before the first call: the communicator's nodes. Both stay the caller's.
  void set_hierarchy(const Hierarchy* hierarchy, PlainAllreduce between_leaders) {
    hierarchy_ = hierarchy;
    between_leaders_ = std::move(between_leaders);
  }

 private:
  struct Measured {
    CodecCost cost;
    std::uint64_t calls = 0;
    std::map<int, Trials> trials;  // by the binary logarithm of the calls' elements
  };
  std::string forced_;
  NetworkModel network_;
  const Hierarchy* hierarchy_ = nullptr;
  PlainAllreduce between_leaders_;
  std::optional<HierarchyModel> hierarchy_model_;
  std::map<const Codec*, Measured> codecs_;
};

}  // namespace crimp
