// Sums of float16 that a program brought itself: which user operations add halves, and which datatypes hold them.
//
// An operation is taken for one only where its function's symbol says float16 (or half) and sum, and trying it on known values adds
// them (Horovod: horovod::common::float16_sum). A datatype is taken for float16 where it is two contiguous MPI_BYTEs.
#pragma once
#include <mpi.h>

namespace crimp {

void note_op(MPI_User_function* function, MPI_Op op);  // after MPI_Op_create
void forget_op(MPI_Op op);                             // before MPI_Op_free
bool sums_halves(MPI_Op op);
bool holds_halves(MPI_Datatype type);

}  // namespace crimp
