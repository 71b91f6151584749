// What may be compressed, from values that MPI requires to be equal on all ranks: datatype, operation, count.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <optional>

#include "core/report.hpp"
#include "core/types.hpp"

namespace crimp {

// A sum as a program asks for it, by MPI_Allreduce or by crimp_allreduce.
struct SumCall {
  const void* sendbuf;  // MPI_IN_PLACE is possible
  void* recvbuf;
  std::uint64_t count;  // a negative one of MPI's counts as more than there is memory
  MPI_Datatype datatype;
  MPI_Op op;
  MPI_Comm comm;
  bool shared = false;  // ranks receive shares
};

enum class Way {
  pass,   // through MPI
  small,  // through MPI, unless its tensors are known and have momentum
  compress
};

struct Eligibility {
  Way way;
  PassReason why;  // where the way is MPI's
  Dtype dtype;     // where it is not `pass`
};

// Which way a call takes, as far as its arguments and the settings say. with_codec: it has a codec whatever CRIMP_CODEC
// says.
Eligibility classify(const SumCall&, bool with_codec);

// The element type of a sum of floating-point numbers, or nothing and the reason. A user operation is known by its
// name or its library; sums_halves() tries it.
std::optional<Dtype> summed_type(MPI_Datatype, MPI_Op, PassReason* why);

// Left to MPI, whose errors are better than ours: null communicators and buffers, in-place receive, no elements; of
// sums that all ranks receive, where programs alias on all ranks or on none, aliased buffers. A share may lie where one
// rank's buffer begins.
bool odd_arguments(const SumCall&);

}  // namespace crimp
