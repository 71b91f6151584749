// MPI of this process: started once, by whoever comes first, and ended once.
#pragma once
#include <mpi.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
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

// Between start_mpi() and the end of MPI, or last_mpi_turn().
bool mpi_runs();

// Throws "crimp: MPI has ended" where it does not run.
void check_runs();

// Held around every call of MPI's, so that MPI does not end in one. Of several at a time only where MPI takes calls of
// several threads.
struct MpiTurn {
  std::shared_lock<std::shared_mutex> before_the_end;
  std::unique_lock<std::mutex> alone;
};

// Throws as check_runs().
MpiTurn mpi_turn();

// None where MPI does not run, or another thread's call would have to be waited for.
std::optional<MpiTurn> try_mpi_turn();

// Waits for all turns; nobody gets one any more.
std::unique_lock<std::shared_mutex> last_mpi_turn();

// In the last turn: ends MPI if start_mpi() began it, and nobody has ended it meanwhile.
void finalize_mpi();

// Throws what MPI says of `code`, as "crimp: <call>: <text>", unless it is MPI_SUCCESS.
void check_mpi(int code, const char* call);

// IPv4 addresses of this host, those of the loopback interface last.
std::vector<std::string> addresses();

}  // namespace crimp_torch
