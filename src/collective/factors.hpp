// What algorithm low_rank makes of a call's tensors.
#pragma once
#include <cstdint>
#include <vector>

#include "codec/powersgd/powersgd_extents.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "collective/plan.hpp"

namespace crimp {

// The call's tensors, without their factors, and how many floats are summed first and then.
struct Factors {
  struct Candidates {
    std::size_t tensor, segment;
    std::vector<std::uint64_t> cols;
  };
  std::vector<powersgd::Tensor> tensors;
  std::vector<std::size_t> segments;  // of the tensors
  std::uint64_t left = 0, right = 0;
  std::vector<Candidates> found;  // tensors whose columns are found in this call
  std::uint64_t shares = 0;       // floats that this takes behind P
  std::uint64_t sample = 0;       // floats of host memory that this takes
};

// What is known of a segment's shape; null: nothing.
inline powersgd::Extents* extents_of(const CallBuffers& call, std::size_t segment) {
  return call.extents.empty() ? nullptr : call.extents[segment];
}

// agreed: false where the ranks know different things, and nothing is used of it.
Factors factors_of(const PartPlan&, const CallBuffers&, bool agreed);

}  // namespace crimp
