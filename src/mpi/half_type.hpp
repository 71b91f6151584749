// MPI handles for float16 and bfloat16, which MPI 3.1 lacks: a two-byte type and an operation that adds in float and
// rounds once a hop.
#pragma once
#include <mpi.h>

#include "core/types.hpp"

namespace crimp {

// Made at first use (local), committed (own_handles.hpp). dtype is f16 or bf16. Throws Error{transport_failed}.
// True once either has been asked for; until then no caller can hold the handles.
bool half_types_exist();
MPI_Datatype half_type(Dtype);
MPI_Op half_sum(Dtype);

}  // namespace crimp
