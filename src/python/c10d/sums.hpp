// What a group's thread does of a call, between its turn and its end: sums by crimp_allreduce,
// crimp_reduce_scatter_block or MPI, and gathered tensors. Errors are thrown.
#pragma once
#include <mpi.h>

#include <memory>

#include "labels.hpp"
#include "reduction.hpp"

namespace crimp_torch {

// The tensors' names or null, and the number of ranks.
void all_reduce(const at::Tensor& tensor, const Reduction& r, const Label* label, int size, MPI_Comm comm);
void reduce_scatter_block(at::Tensor output, at::Tensor input, const Reduction& r, const Label* label, int size,
                          MPI_Comm comm);
// Names that fit a buffer of which each rank gets such a share; null: none do.
std::shared_ptr<const Label> scattered_label(const at::Tensor& share, const Reduction& r, int size);

// `input` of each rank, in rank order.
void all_gather(at::Tensor output, at::Tensor input, MPI_Comm comm);

}  // namespace crimp_torch
