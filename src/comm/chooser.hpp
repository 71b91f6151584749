// Which algorithm a call takes, or plain MPI where that is predicted to be faster. Measured at a communicator's first compressed call, agreed
// by all ranks: every number is the slowest rank's, exchanged before it is used.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/algorithms.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// Sums floats in place over the transport's ranks by MPI itself. Throws Error{transport_failed}.
using PlainAllreduce = std::function<void(float* buffer, std::uint64_t count)>;

// Collective. The largest of each rank's values, in place; at most 8 of them.
void agree_on_largest(Transport&, std::span<double> values);
// Collective; exchanges of growing size until one takes kLongEnough.
NetworkModel measure_network(Transport&, const PlainAllreduce&);
// Collective. `sample` are values of the call, replaced where they are none that the codec takes.
CodecCost measure_codec(Transport&, const Codec&, std::span<const float> sample, Workers&);
inline constexpr std::uint64_t kSampleElements = 16 * kPieceElements;

struct Choice {
  Algorithm algorithm = Algorithm::allgather;
  bool plain = false;  // MPI_Allreduce is predicted to be faster than any
  const char* why = "";
  double predicted_s = 0, plain_s = 0;  // 0: not predicted
};

// One call's part to one codec.
struct ChoiceQuery {
  const Codec* codec;
  std::uint64_t count, chunk_setting;
  std::uint64_t plain_bytes;  // of the same elements in the caller's type
};

// The cheapest of the algorithms that can run the codec. The same function makes the tables of `crimp model`.
Choice cheapest(const NetworkModel&, const CodecCost&, const ChoiceQuery&);
// What one algorithm would take.
double predicted(const AlgorithmEntry&, const NetworkModel&, const CodecCost&, const ChoiceQuery&);

// A communicator's own. Not thread-safe.
class Chooser {
 public:
  // forced: as CRIMP_ALGORITHM; "auto": the cheapest.
  explicit Chooser(const std::string& forced) : forced_(forced) {}
  // Collective where something must be measured, which is a function of the calls so far. `sample` gives values of the call on demand.
  Choice choose(Transport&, Workers&, const ChoiceQuery&, const PlainAllreduce&, const std::function<std::vector<float>()>& sample);
  const NetworkModel& network() const { return network_; }

 private:
  struct Measured {
    CodecCost cost;
    std::uint64_t calls = 0;
  };
  std::string forced_;
  NetworkModel network_;
  std::map<const Codec*, Measured> codecs_;
};

}  // namespace crimp
