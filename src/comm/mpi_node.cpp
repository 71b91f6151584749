#include "comm/mpi_node.hpp"

#include <atomic>
#include <new>

#include "core/stall.hpp"
#include "crimp/error.hpp"

namespace crimp {

MpiNode::MpiNode(MPI_Comm comm, int rank, int node_size) {
  check_mpi(PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm_), "MPI_Comm_split_type");
  if (node_size > 0) {
    MPI_Comm machine = comm_;
    int of_machine = 0;
    check_mpi(PMPI_Comm_rank(machine, &of_machine), "MPI_Comm_rank");
    check_mpi(PMPI_Comm_split(machine, of_machine / node_size, rank, &comm_), "MPI_Comm_split");
    check_mpi(PMPI_Comm_free(&machine), "MPI_Comm_free");
  }
  check_mpi(PMPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(PMPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  check_mpi(PMPI_Comm_split(comm, rank_ == 0 ? 0 : MPI_UNDEFINED, rank, &leaders_), "MPI_Comm_split");
  const int leads = rank_ == 0;
  check_mpi(PMPI_Allreduce(&leads, &nodes_, 1, MPI_INT, MPI_SUM, comm), "MPI_Allreduce");
  check_mpi(PMPI_Allreduce(&size_, &largest_, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
  if (!useful()) return;
  auto* const notes = reinterpret_cast<Note*>(allocate(static_cast<std::uint64_t>(size_) * sizeof(Note), &notes_window_));
  notes_ = {notes, static_cast<std::size_t>(size_)};
  new (notes + rank_) Note;
  barrier();
}

std::byte* MpiNode::allocate(std::uint64_t bytes, MPI_Win* window) {
  void* base = nullptr;
  const int rc = PMPI_Win_allocate_shared(rank_ == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, comm_, &base, window);
  if (rc != MPI_SUCCESS)
    throw Error(ErrorCode::out_of_memory, std::to_string(bytes) + " bytes of shared memory were asked for and not given (MPI_Win_allocate_shared)");
  MPI_Aint size = 0;
  int unit = 1;
  check_mpi(PMPI_Win_shared_query(*window, 0, &size, &unit, &base), "MPI_Win_shared_query");
  return static_cast<std::byte*>(base);
}

std::byte* MpiNode::memory(std::uint64_t bytes) {
  if (bytes <= bytes_) return memory_;
  if (window_ != MPI_WIN_NULL) {
    check_mpi(PMPI_Win_free(&window_), "MPI_Win_free");
    bytes_ = 0;
  }
  memory_ = allocate(bytes + bytes / 4, &window_);
  bytes_ = bytes + bytes / 4;
  return memory_;
}

// Memory of one machine needs no MPI_Win_sync, which would need an epoch that stays open.
void MpiNode::barrier() {
  const auto where = [] {
    return std::string("in a node's barrier (algorithm hierarchical) for the other ranks of its node. Likely one is not in the same MPI_Allreduce, "
                       "or is late or dead");
  };
  const StallGuard guard(rank_, size_, where);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  check_mpi(PMPI_Barrier(comm_), "MPI_Barrier");
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void MpiNode::free() {
  for (MPI_Win* window : {&window_, &notes_window_})
    if (*window != MPI_WIN_NULL) PMPI_Win_free(window);
  for (MPI_Comm* comm : {&leaders_, &comm_})
    if (*comm != MPI_COMM_NULL) PMPI_Comm_free(comm);
}

}  // namespace crimp
