// Sums over a communicator, however they were asked for.
#pragma once
#include "eligibility.hpp"
#include "mpi/request.hpp"
#include "next.hpp"

namespace crimp {

// Whether calls are looked at: MPI runs, and Crimp is started, if need be here.
bool ready();

// Whether the communicator's ranks have the same settings, where that could not be found at MPI_Init; else *why.
// Collective at the communicator's first call. Inside guard().
bool ranks_agree(MPI_Comm, PassReason* why);

// Sums a call that is not Way::pass, compressed. False: it is for MPI, on all ranks, for *why. Inside guard().
bool sum(const SumCall&, const Eligibility&, const AllreduceRequest&, PassReason* why);

// One MPI_Allreduce.
int allreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace crimp
