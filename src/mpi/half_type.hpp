// MPI handles for float16 and bfloat16, which MPI 3.1 lacks: a two-byte type and an operation that adds in float and
// rounds once a hop.
#pragma once
#include <mpi.h>

#include "core/types.hpp"

namespace crimp {

// Whether a call's are these of that type; makes none, as no caller can hold what has not been made.
bool are_half_handles(MPI_Datatype, MPI_Op, Dtype);
// Made at first use (local), committed (own_handles.hpp). dtype is f16 or bf16. Throws Error{transport_failed}.
MPI_Datatype half_type(Dtype);
MPI_Op half_sum(Dtype);

}  // namespace crimp
