// How much of what a call was to send it did send, on a sample: the norm of the values that were sent by the norm of
// the values with what waited (GraVAC's compression gain, Tyagi and Swany, arXiv 2305.12201).
#pragma once
#include <cstdint>
#include <vector>

#include "mpi/bound_call.hpp"

namespace crimp {

class GainSample {
 public:
  static constexpr std::uint64_t kElements = 16384;
  // Of the call's largest tensor with a residual and a codec of the ladder, its first elements, before the call runs.
  // Takes nothing and says -1 where there is none, no memory, or where a node's sum is encoded, which is not here.
  GainSample(const CallPlan&, const ChosenParts&, const BoundCall&, MemoryResource&) noexcept;
  // After it has run: what is left is in the residual.
  double gain() const noexcept;

 private:
  MemoryResource& memory_;
  const float* residual_ = nullptr;
  std::vector<float> values_;
};

}  // namespace crimp
