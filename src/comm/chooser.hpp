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
#include "comm/node.hpp"
#include "comm/trials.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// Sums floats in place over the transport's ranks by MPI itself. Throws Error{transport_failed}.
using PlainAllreduce = std::function<void(float* buffer, std::uint64_t count)>;

// Collective. The largest of each rank's values, in place; at most 8 of them.
void agree_on_largest(Transport&, std::span<double> values);
// Collective; exchanges of growing size until one takes kLongEnough.
NetworkModel measure_network(Transport&, const PlainAllreduce&);
// This rank's own, on `sample`; values of our own where those are none that the codec takes.
CodecCost time_codec(const Codec&, std::span<const float> sample, Workers&);
// Collective. `sample` gives values of the call. Throws Error{out_of_memory} on all ranks where one lacked memory for it.
CodecCost measure_codec(Transport&, const Codec&, const std::function<std::vector<float>()>& sample, Workers&);
inline constexpr std::uint64_t kSampleElements = 16 * kPieceElements;

// What a hierarchy costs: its leaders' network, and one rank's work within its node.
struct HierarchyModel {
  NetworkModel leaders;
  NodeModel node;
};
// Collective over `all`. hierarchy.inner is not looked at. Empty on all ranks where a node has no memory to share.
std::optional<HierarchyModel> measure_hierarchy(Transport& all, const Hierarchy&, const PlainAllreduce& plain_between_leaders);

// All that can run the codec, with predictions; where none of them has a cost function, the first one without.
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
  // Collective where something must be measured, which is a function of the calls so far. `sample` gives values of the call on demand.
  Choice choose(Transport&, Workers&, const ChoiceQuery&, const PlainAllreduce&, const std::function<std::vector<float>()>& sample);
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
