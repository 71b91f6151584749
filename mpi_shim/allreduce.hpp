// Sums over a communicator, however they were asked for.
#pragma once
#include <memory>

#include "eligibility.hpp"
#include "mpi/request.hpp"
#include "next.hpp"

namespace crimp {

// Starts Crimp where it was loaded after MPI_Init. False: there is nothing to do for it, before MPI_Init or behind
// MPI_Finalize. Out of line, so that the way past it stays short.
bool ready();

// Whether the communicator's ranks have the same settings, where that could not be found at MPI_Init; else *why.
// Collective at the communicator's first call. Inside guard().
bool ranks_agree(MPI_Comm, PassReason* why);

// The call as a Session gets it, but for what it may do through MPI.
AllreduceRequest request_of(const SumCall&, Dtype, std::shared_ptr<const Shares> shares = nullptr, int rank = 0);

// Sums a call that is not Way::pass, compressed. False: it is for MPI, on all ranks, for *why. Inside guard().
bool sum(const SumCall&, const Eligibility&, const AllreduceRequest&, PassReason* why);

// One MPI_Allreduce.
int allreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace crimp
