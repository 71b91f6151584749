// MPI of this process: started once, by whoever comes first, and ended once.
#pragma once
#include <mpi.h>

#include <mutex>
#include <string>
#include <vector>

namespace crimp_torch {

struct MpiPlace {
  int rank, size;
};

// Initializes MPI unless that is done, asking for MPI_THREAD_MULTIPLE. Throws where MPI runs with less than
// MPI_THREAD_SERIALIZED, or has ended. Collective over MPI_COMM_WORLD where MPI does not run yet.
MpiPlace start_mpi();

// Whether all ranks share one. Collective over MPI_COMM_WORLD.
bool one_host();

// Rank 0's text, on all ranks of MPI_COMM_WORLD. Collective.
std::string share(const std::string& text);

// Between start_mpi() and the end of MPI.
bool mpi_runs();

// Ends MPI if start_mpi() began it, and nobody has ended it meanwhile.
void finalize_mpi();

// Held around every call of MPI's. Locks nothing where MPI takes calls of several threads.
std::unique_lock<std::mutex> mpi_turn();

// Throws what MPI says of `code`, as "crimp: <call>: <text>", unless it is MPI_SUCCESS.
void check_mpi(int code, const char* call);

// IPv4 addresses of this host, those of the loopback interface last.
std::vector<std::string> addresses();

}  // namespace crimp_torch
