// Calls that no codec takes, of tensors that have momentum all the same (src/mpi/exact_sum.hpp says why).
#pragma once
#include "collective/call_plan.hpp"
#include "core/pass_reason.hpp"
#include "mpi/call_values.hpp"
#include "mpi/request.hpp"
#include "mpi/tensor_memory.hpp"

namespace crimp {

// A whole call that no codec takes, of tensors of which some have momentum; results and all. Collective. False: there
// is no memory for it on this rank, the call is for MPI here, where the other ranks meet it, for *why; where ranks
// receive shares, there is none on some rank, and the call is for MPI on all.
bool sum_with_momentum(const AllreduceRequest&, const CallPlan&, CallValues&, TensorMemory&, int ranks,
                       PassReason* why);

}  // namespace crimp
