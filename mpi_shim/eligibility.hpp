// What may be compressed, from values that MPI requires to be equal on all ranks: datatype, operation, count.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <optional>

#include "core/report.hpp"
#include "core/types.hpp"

namespace crimp {

// The element type of a sum of floating-point numbers, or nothing and the reason. A user operation is known by its name; sums_halves() tries it.
std::optional<Dtype> summed_type(MPI_Datatype, MPI_Op, Pass* why);

// Left to MPI, whose errors are better than ours: null buffers, in-place receive, aliased buffers.
bool odd_arguments(const void* sendbuf, const void* recvbuf, std::uint64_t count);

}  // namespace crimp
