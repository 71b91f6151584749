// CRIMP_PROGRESS=thread: sums that do not block are carried by a thread of their communicator, as blocking ones are,
// while the program computes. The program has a generalized request (MPI-3.1, 12.2).
//
// A lane is a duplicate of the communicator and its thread. It is made where the communicator is (MPI_Init,
// MPI_Comm_dup, MPI_Comm_split, ...), because all ranks are there and making one needs them all; sums on communicators
// that were made otherwise go without (mpi/nonblocking.hpp). So do those that have none because a rank has too many
// lanes, or could not make one: all of their ranks agree on that, and the program's error handlers hear nothing of it.
#pragma once
#include <mpi.h>

#include <memory>

#include "allreduce.hpp"
#include "eligibility.hpp"

namespace crimp {

// Before MPI_Init: whether this rank's settings ask for threads, so that MPI must allow many.
bool asks_for_threads();
// After MPI_Init, collective: opens MPI_COMM_WORLD's lane where all ranks may have one.
void open_lanes();
// A communicator has been made, which the program has not been given yet; collective over it. Inside guard().
void open_lane(MPI_Comm);
// Before it is freed, collective over it: what is under way ends.
void close_lane(MPI_Comm);
void close_lanes();  // before MPI_Finalize

// Hands a sum of Way::compress to the communicator's lane. False: it has none. Inside guard().
// shares: null for MPI_Iallreduce; else `rank` is this one.
bool start_in_lane(const SumCall&, const Eligibility&, std::shared_ptr<const Shares> shares, int rank, MPI_Request*);

}  // namespace crimp
