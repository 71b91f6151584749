// Tensors of a call that no codec takes: they travel together, in one exact sum by MPI. Where the codec of the others
// holds the training's momentum (memory `momentum`, DGC) they must have it too: every rank sums a = v + u in place of
// its values (compensate_exactly), which is momentum SGD, because sums are linear.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/call_plan.hpp"
#include "core/error.hpp"
#include "mpi/call_values.hpp"
#include "mpi/request.hpp"
#include "mpi/tensor_memory.hpp"

namespace crimp {

struct ExactTensor {
  const Segment* segment;
  const Codec* momentum = nullptr;  // whose memory `momentum` it has
  float* memory = nullptr;          // its two arrays, in host memory; null: none
};

// Elements of all of them together.
std::uint64_t count_of(std::span<const ExactTensor>);

// In two steps, because what the call's other tensors come to may lie where these ones' values are: packs them, with
// momentum where they have it, into room for count_of() elements of the call's type, which MPI can read. What fails is
// returned, because the other ranks wait for this one in the second step.
std::optional<Error> pack(const AllreduceRequest&, std::span<const ExactTensor>, const CallValues&,
                          std::span<char> packed, int ranks);
// Sums what is packed and writes this rank's share of it. Collective: `failure` of packing, and what fails here, is
// thrown when the sum is done.
void sum_exactly(const AllreduceRequest&, std::span<const ExactTensor>, const CallValues&, std::span<char> packed,
                 const std::optional<Error>& failure);

}  // namespace crimp
