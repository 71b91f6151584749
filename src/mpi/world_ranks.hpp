// Facts of MPI_COMM_WORLD: which of its ranks a communicator has, and which of them share a machine.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <vector>

namespace crimp {

// The communicator's ranks in MPI_COMM_WORLD; -1: of another world.
std::vector<int> world_ranks(MPI_Comm);
// Whether all of them are in this world. In MPI_Init only their settings were compared; ranks of another one may lack
// Crimp. The same answer on all ranks.
bool of_this_world(MPI_Comm);
// Collective over MPI_COMM_WORLD, in MPI_Init: numbers of each rank's, as many from all, in rank order. Who waits too
// long says that it is `where`. Throws Error{transport_failed}.
std::vector<std::uint64_t> gather_in_init(const std::vector<std::uint64_t>& mine, int rank, int size,
                                          const char* where);
// Likewise: of each rank the lowest one that shares its machine, by MPI_COMM_TYPE_SHARED. Ranks of which MPI gives
// their peers another account than them share it with nobody; *alone: how many.
std::vector<int> hosts_of_world(int rank, int size, int* alone);

// CallBuffers::salt of a rank of the communicator with these ranks in MPI_COMM_WORLD. 0: they are the whole world, in
// its order, so that calls there have the bits of their rank and number alone. nonblocking: of sums that do not block,
// which are counted apart.
std::uint32_t salt_of(const std::vector<int>& world_ranks, int rank, bool nonblocking);

}  // namespace crimp
