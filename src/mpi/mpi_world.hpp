// A duplicate of MPI_COMM_WORLD, for messages between some of a communicator's ranks only: those of a node, and nodes'
// leaders.
//
// Made in MPI_Init and freed in MPI_Finalize. Nothing is made inside a call: that hangs programs whose threads call on
// several communicators in different orders. Nothing is freed with the caller's communicator: MPI_Comm_free would wait
// for other ranks. What fails on it is returned, not raised, whatever handler the program's communicators have; callers
// make it an Error without an MPI code, which is raised on the caller's.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "mpi/mpi_wait.hpp"

namespace crimp {

class PrivateWorld {
 public:
  // Collective over MPI_COMM_WORLD. Throws Error{transport_failed}.
  void open();
  void close();
  bool is_open() const { return comm_ != MPI_COMM_NULL; }
  MPI_Comm comm() const { return comm_; }

  static constexpr int kTags = 2;  // of a channel: its number and those behind it
  // Collective over `comm`, this one being `rank` of `size`, whose ranks are all in the world: the first tag of a
  // channel that no two of them share with another open channel. Throws Error{transport_failed}, and
  // Error{out_of_memory} on all ranks where there is none. Thread-safe.
  int open_channel(MPI_Comm comm, int rank, int size);
  void close_channel(int tag);  // local

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::mutex mutex_;  // never held over MPI calls
  std::set<int> channels_;
  int next_ = 0;
};

// The communicator's ranks in MPI_COMM_WORLD; -1: of another world.
std::vector<int> world_ranks(MPI_Comm);
// Collective over MPI_COMM_WORLD, in MPI_Init: numbers of each rank's, as many from all, in rank order. Who waits too
// long says that it is `where`. Throws Error{transport_failed}.
std::vector<std::uint64_t> gather_in_init(const std::vector<std::uint64_t>& mine, int rank, int size,
                                          const char* where);
// Likewise: of each rank the lowest one that shares its machine, by MPI_COMM_TYPE_SHARED. Ranks of which MPI gives
// their peers another account than them share it with nobody; *alone: how many.
std::vector<int> hosts_of_world(int rank, int size, int* alone);
// Whether all are in this one. In MPI_Init only their settings were compared; ranks of another one may lack Crimp. The
// same answer on all ranks.
bool of_this_world(MPI_Comm);

// CallBuffers::salt of a rank of the communicator with these ranks in MPI_COMM_WORLD. 0: they are the whole world, in
// its order, so that calls there have the bits of their rank and number alone. nonblocking: of sums that do not block,
// which are counted apart.
std::uint32_t salt_of(const std::vector<int>& world_ranks, int rank, bool nonblocking);

// Collective over `comm`, while its nodes are opened: of all ranks' numbers what `op` makes of them. Throws
// Error{transport_failed}.
int agree_on_nodes(MPI_Comm comm, int rank, int size, int mine, MPI_Op op);

// As check_mpi(), for a communicator of Crimp's own.
void check_private(int rc, const char* call);
// Likewise as wait_for().
template <class What>
void wait_private(MPI_Request& request, int rank, int size, const What& what) {
  try {
    wait_for(request, rank, size, what);
  } catch (const Error& e) {
    throw Error(e.code(), e.what());
  }
}

}  // namespace crimp
