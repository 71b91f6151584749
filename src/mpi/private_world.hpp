// A duplicate of MPI_COMM_WORLD, for messages between some of a communicator's ranks only: those of a node, and nodes'
// leaders.
//
// Made in MPI_Init and freed in MPI_Finalize. Nothing is made inside a call: that hangs programs whose threads call on
// several communicators in different orders. Nothing is freed with the caller's communicator: MPI_Comm_free would wait
// for other ranks. What fails on it is returned, not raised, whatever handler the program's communicators have; callers
// make it an Error without an MPI code, which is raised on the caller's.
#pragma once
#include <mpi.h>

#include <mutex>
#include <set>

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

// Collective over `comm`, while its nodes are opened: of all ranks' numbers what `op` makes of them. Throws
// Error{transport_failed}.
int agree_on_nodes(MPI_Comm comm, int rank, int size, int mine, MPI_Op op);

}  // namespace crimp
