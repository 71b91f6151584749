// One MPI_Allreduce, however it was entered.
#pragma once
#include "next.hpp"

namespace crimp {

int allreduce(const Next& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace crimp
