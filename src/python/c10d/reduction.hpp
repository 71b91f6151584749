// What a reduction of torch's is in MPI.
#pragma once
#include <ATen/ATen.h>
#include <crimp/crimp.h>
#include <mpi.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace crimp_torch {

struct Reduction {
  at::ScalarType values;  // the type in which MPI reduces: the tensor's own, or one that holds its values
  MPI_Datatype type;
  MPI_Op op;
  bool gradient;      // a floating-point sum, which Crimp may compress
  crimp_dtype dtype;  // its type
  bool averages;      // results are divided by the number of ranks
};

// Throws where MPI and Crimp have no such reduction. MPI runs.
Reduction reduction(at::ScalarType values, const c10d::ReduceOp& op);

// The MPI type of one element whose value does not matter.
MPI_Datatype element_type(const at::Tensor& tensor);

// A count as MPI takes it; throws beyond 2^31 - 1.
int mpi_count(std::int64_t count);

// Divides each element of a contiguous host tensor, whole numbers toward zero, on the calling thread alone.
void divide(at::Tensor& tensor, double divisor);

}  // namespace crimp_torch
