// Nodes over MPI: memory that a node's processes share, messages between some ranks in the private world.
#pragma once
#include <mpi.h>

#include <optional>
#include <vector>

#include "collective/node.hpp"
#include "memory/shared_memory.hpp"
#include "mpi/mpi_peer_transport.hpp"
#include "mpi/private_world.hpp"

namespace crimp {

class MpiNode final : public Node {
 public:
  // peers: the node's ranks in `comm`; messages with `tag` between them are this node's. The memory is the node's.
  MpiNode(MPI_Comm comm, std::vector<int> peers, int rank, int tag, SharedMemory memory);
  // Bytes that the memory must have.
  static std::uint64_t bytes(int ranks);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::span<Note> notes() override { return {reinterpret_cast<Note*>(memory_.data()), peers_.size()}; }
  std::span<float> memory() override;

 private:
  void meet() override;
  MPI_Comm comm_;
  std::vector<int> peers_;
  int rank_, tag_;
  SharedMemory memory_;
};

// A communicator's nodes. Giving them back is local.
class MpiHierarchy {
 public:
  // Collective over `comm`, this one being `rank` of it; world_ranks: of its ranks; nodes: nodes_of() them, and
  // useful(). Throws Error{out_of_memory} on all ranks where memory could not be shared on one; the first such rank
  // says why, once.
  MpiHierarchy(PrivateWorld&, MPI_Comm comm, int rank, const std::vector<int>& world_ranks,
               const std::vector<std::vector<int>>& nodes);
  ~MpiHierarchy();
  const Hierarchy& get() const { return hierarchy_; }

 private:
  void open(MPI_Comm, int rank, const std::vector<int>& world_ranks, const std::vector<std::vector<int>>& nodes);
  PrivateWorld& world_;
  int tag_;
  std::optional<MpiNode> node_;
  std::optional<PeerTransport> leaders_;
  Hierarchy hierarchy_{};
};

}  // namespace crimp
