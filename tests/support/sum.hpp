// Sums of one buffer, step after step, by any algorithm and with its memories; ranks are threads.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/collective.hpp"
#include "collective/node.hpp"
#include "memory/workers.hpp"
#include "support/thread_transport.hpp"

namespace crimp::test {

// An algorithm among all ranks, or among the leaders of nodes of so many ranks.
struct Way {
  Algorithm algorithm;
  int per_node = 0;  // 0: no nodes
};
std::string text_of(const Way&);  // "two_shot", "hierarchical (nodes of 2, thc...)"
// All that can run the codec.
std::vector<Way> ways_of(const Codec&, int ranks);

// One rank's side.
class Sum {
 public:
  // Codec, transport and hierarchy stay the caller's. tensors: the elements of each, in order. hierarchy: of a call in
  // nodes, null: none.
  Sum(Transport&, const Codec&, Algorithm, const std::vector<std::size_t>& tensors,
      const Hierarchy* hierarchy = nullptr);
  // Sums in place; false on all ranks where a rank's values left the codec's range, or its payloads the format.
  bool operator()(float* values);
  double bits() const {
    return 8.0 * static_cast<double>(sent_) / (static_cast<double>(route_->part.count) * call_.sequence);
  }  // sent per value
  // Adds what this rank's memories hold back: residuals of its values, and of the sums that it owns.
  void add_held(double* to) const;

 private:
  Transport& transport_;
  const Codec& codec_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<const RoutePlan> route_;
  CallBuffers call_;
  std::vector<std::vector<float>> memories_, owner_memories_;
  Arena arena_;
  Workers workers_{1};
  std::uint64_t sent_ = 0;
};

// body(rank, sum) on a thread for each rank.
void run_sums(const Way&, int ranks, const Codec&, const std::vector<std::size_t>& tensors,
              const std::function<void(int, Sum&)>& body);

}  // namespace crimp::test
