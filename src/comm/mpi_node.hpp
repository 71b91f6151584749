// Nodes over MPI: shared windows, and communicators of the node's ranks and of the leaders.
#pragma once
#include <mpi.h>

#include <memory>

#include "comm/mpi_transport.hpp"
#include "comm/node.hpp"

namespace crimp {

class MpiNode final : public Node {
 public:
  // Collective over `comm`. node_size: pretended, of ranks in order (CRIMP_NODE_SIZE); 0: as the machine is.
  MpiNode(MPI_Comm comm, int rank, int node_size);
  // Collective over the node's ranks, and over the leaders. Without it communicators and windows stay until MPI_Finalize, where sessions end
  // in no order that ranks agree on.
  void free();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::span<Note> notes() override { return notes_; }
  std::byte* memory(std::uint64_t bytes) override;
  void barrier() override;

  int nodes() const { return nodes_; }
  int largest() const { return largest_; }  // ranks of the largest node
  // One node, or nodes of one rank each, need no hierarchy.
  bool useful() const { return nodes_ > 1 && largest_ > 1; }
  MPI_Comm leaders() const { return leaders_; }  // MPI_COMM_NULL on ranks that do not lead

 private:
  std::byte* allocate(std::uint64_t bytes, MPI_Win* window);
  MPI_Comm comm_ = MPI_COMM_NULL, leaders_ = MPI_COMM_NULL;
  MPI_Win notes_window_ = MPI_WIN_NULL, window_ = MPI_WIN_NULL;
  std::span<Note> notes_;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  int rank_ = 0, size_ = 1, nodes_ = 1, largest_ = 1;
};

}  // namespace crimp
