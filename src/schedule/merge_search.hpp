// The merge schedule that a timeline of a step predicts to end first (MergeComp's problem, arXiv 2103.15195, solved
// exactly).
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace crimp {

// Where groups begin, as CRIMP_MERGE=cuts=...: tensors in rising order, without the first group's 0.
using Cuts = std::vector<std::uint32_t>;

// A step, seen from its begin. Tensors become ready one by one; a group of consecutive tensors is one call, which
// begins when all of them are ready and the call before has ended.
struct Timeline {
  std::vector<double> ready_s;       // of each tensor, in the recorded order
  std::vector<std::uint64_t> bytes;  // likewise
  std::function<double(std::uint64_t bytes)> call_s;

  // When the last group's call has ended.
  double end_s(std::span<const std::uint32_t> cuts) const;
};

// Of all cuts, those with the least end_s; of equal ends those with fewer groups, as far as the way there shows it. The
// end of the groups up to a tensor is no later where the ones before end earlier, so the best ends of all prefixes
// (N^2 / 2 calls of call_s) give the best of all 2^(N-1) cuts.
Cuts best_cuts(const Timeline&);

}  // namespace crimp
