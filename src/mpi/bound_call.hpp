// A planned call with the pointers of this time: where each part's values, residuals and scratch are, and what this
// rank has to say of them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/call_choice.hpp"
#include "collective/call_plan.hpp"
#include "collective/plan.hpp"
#include "core/settings.hpp"
#include "mpi/call_values.hpp"
#include "mpi/exact_sum.hpp"
#include "mpi/tensor_memory.hpp"
#include "schedule/call_sequence.hpp"

namespace crimp {

struct BoundCall {
  std::vector<CallBuffers> parts;  // as the plan's
  // Of each part: of the segments that this rank encodes (null where skipped), or empty.
  std::vector<std::vector<Residual*>> residuals;
  float* widened = nullptr;  // float32 copies of the values; null: none are needed
  float* aside = nullptr;    // own sums, whose place still has values to encode; null: they are where they belong
  // What is summed exactly, and room for it, had from the start, because later there is no way back.
  std::vector<ExactTensor> exact;
  std::span<char> packed;
  bool failed = false;         // this rank cannot take part; then all parts' flags have kFlagNoMemory
  std::string failure;         // why, where there was memory to say it
  bool added_on_host = false;  // what run() found: CollectiveResult::through_host
};

// What of a communicator a call is bound to.
struct BindTo {
  const Settings& settings;
  Workers& workers;
  int rank, ranks;
  TensorMemory& memory;
  CallSequence& calls;  // looks at magnitudes where its layouts are used
  std::uint32_t salt;   // CallBuffers::salt
  bool idle_waits;      // crimp_set_idle_waits
};

// Looks at the values, finds what is kept of the tensors, takes scratch. Nothing of it is collective, and nothing
// throws but std::bad_alloc where not even the reserve (core/reserve.hpp) is left: what this rank cannot do becomes a
// flag, as `flags` does, what is known of the values here already (WireFlag). The plan stays while the call is used.
BoundCall bind(const BindTo&, const CallPlan&, const ChosenParts&, const AllreduceRequest&, std::uint8_t flags,
               std::uint32_t sequence, CallValues&);

}  // namespace crimp
