// Sums of float16 and bfloat16 that a program brought itself: which user operations add halves, and which datatypes
// hold them.
//
// An operation may be one only where its function is, exactly, one of the symbols in half_ops.cpp (Horovod's
// horovod::common::float16_sum), or lies in one of the libraries that stand there (MLX, whose functions have no
// symbols). That is noted when it is made; it is tried once, on values at the edges of IEEE half addition: one with a
// name when a call is about to be compressed, one without when it is first asked for. Others are never tried: they are
// the program's code, and what they do with values that are not theirs nobody knows. A datatype is taken for a half
// where it is two contiguous MPI_BYTEs or MPI_UINT8_Ts.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <optional>

#include "core/types.hpp"

namespace crimp {

void note_op(MPI_User_function* function, MPI_Op op);  // after MPI_Op_create; never calls it
// Which note of note_op()'s the handle has, before MPI_Op_free; 0: none. forget_op(): after it, where it has freed the
// operation. Another thread's may have got the handle by then, with a note of its own, which stays.
std::uint64_t note_of(MPI_Op op);
void forget_op(MPI_Op op, std::uint64_t note);
bool may_sum_halves(MPI_Op op);                                    // by its name or its library
std::optional<Dtype> summed_halves(MPI_Op op, MPI_Datatype type);  // of what; may_sum_halves()
bool sums_halves(
    MPI_Op op,
    MPI_Datatype type);  // tries it, the first time, on elements of this type; may_sum_halves() and holds_halves()

}  // namespace crimp
