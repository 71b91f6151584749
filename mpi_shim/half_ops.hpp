// Sums of float16 that a program brought itself: which user operations add halves, and which datatypes hold them.
//
// An operation may be one only where its function is, exactly, one of the symbols in half_ops.cpp (Horovod's
// horovod::common::float16_sum). That is noted when it is made; it is tried once, when a call is about to be
// compressed, on values at the edges of IEEE half addition. A datatype is taken for float16 where it is two contiguous
// MPI_BYTEs.
#pragma once
#include <mpi.h>

namespace crimp {

void note_op(MPI_User_function* function, MPI_Op op);  // after MPI_Op_create; never calls it
void forget_op(MPI_Op op);                             // before MPI_Op_free
bool may_sum_halves(MPI_Op op);                        // by its name
bool sums_halves(
    MPI_Op op,
    MPI_Datatype type);  // tries it, the first time, on elements of this type; may_sum_halves() and holds_halves()
bool holds_halves(MPI_Datatype type);

}  // namespace crimp
