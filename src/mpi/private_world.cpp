#include "mpi/private_world.hpp"

#include <string>

#include "core/error.hpp"
#include "core/reserve.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {

void PrivateWorld::open() {
  check_mpi(PMPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

void PrivateWorld::close() {
  if (is_open()) PMPI_Comm_free(&comm_);
}

// Channels are opened on all ranks of a communicator alike, but by threads on several communicators in any order: two
// may agree on one number at once. Then some rank has given it away already, and all try another one.
int PrivateWorld::open_channel(MPI_Comm comm, int rank, int size) {
  int* most = nullptr;
  int found = 0;
  check_mpi(PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found), "MPI_Comm_get_attr");
  const int last = (found ? *most : 32767) - kTags;
  for (bool again = false;;) {
    int mine = 0;
    {
      std::lock_guard lock(mutex_);
      mine = next_;
    }
    const int agreed = agree_on_nodes(comm, rank, size, mine, MPI_MAX);
    if (agreed > last) {  // those of communicators that were freed are free again
      if (again)
        throw insist([&] {
          return Error(ErrorCode::out_of_memory,
                       "all " + std::to_string(last) + " tags of this MPI library are in use");
        });
      again = true;
      std::lock_guard lock(mutex_);
      next_ = 0;
      continue;
    }
    int free = 0;
    {
      std::lock_guard lock(mutex_);
      insist([&] { free = channels_.insert(agreed).second; });
      if (next_ < agreed + kTags) next_ = agreed + kTags;
    }
    if (agree_on_nodes(comm, rank, size, free, MPI_MIN)) return agreed;
    if (free) close_channel(agreed);
  }
}

void PrivateWorld::close_channel(int tag) {
  std::lock_guard lock(mutex_);
  channels_.erase(tag);
}

int agree_on_nodes(MPI_Comm comm, int rank, int size, int mine, MPI_Op op) {
  int all = mine;
  MPI_Request request;
  check_mpi(PMPI_Iallreduce(&mine, &all, 1, MPI_INT, op, comm, &request), "MPI_Iallreduce");
  wait_for(request, rank, size,
           [&] { return "for the others to open the nodes of " + name_of(comm) + ", as all of its ranks must"; });
  return all;
}

}  // namespace crimp
