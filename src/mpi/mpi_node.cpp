#include "mpi/mpi_node.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>

#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "core/stall.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/world_ranks.hpp"

namespace crimp {
namespace {

std::atomic<bool> told{false};

constexpr const char* kForLeaders =
    "in the exchange between nodes (algorithm hierarchical) for the leaders of the other nodes. Likely a rank of theirs is not in the same "
    "MPI_Allreduce, or is late or dead; if leaders of all nodes wait, look at the network between them";

std::uint64_t note_bytes(std::size_t ranks) { return round_up(ranks * sizeof(Node::Note), kPayloadAlign); }

// Collective over the node. Fails on any of its ranks by itself.
SharedMemory share(MPI_Comm comm, const std::vector<int>& peers, int rank, int tag, std::string& failure) {
  SharedMemory memory;
  SharedMemory::Place place;
  const auto attempt = [&](auto&& work) {
    try {
      if (fault::fires("node_memory")) throw Error(ErrorCode::out_of_memory, "a test wants no shared memory");
      work();
    } catch (const std::exception& e) {
      insist([&] { failure = e.what(); });
    }
  };
  if (rank == 0)
    attempt([&] { memory = SharedMemory(MpiNode::bytes(static_cast<int>(peers.size()))), place = memory.place(); });
  if (rank != 0) {
    MPI_Request request;
    check_private(PMPI_Irecv(&place, sizeof place, MPI_BYTE, peers[0], tag, comm, &request), "MPI_Irecv");
    wait_private(request, rank, static_cast<int>(peers.size()),
                 [] { return std::string("for the first rank of its node to share memory"); });
    if (place.descriptor < 0) return memory;  // the leader says why
    attempt([&] { memory = SharedMemory(place); });
    return memory;
  }
  for (std::size_t r = 1; r < peers.size(); ++r)
    check_private(PMPI_Send(&place, sizeof place, MPI_BYTE, peers[r], tag, comm), "MPI_Send");
  return memory;
}

}  // namespace

MpiNode::MpiNode(MPI_Comm comm, std::vector<int> peers, int rank, int tag, SharedMemory memory)
    : comm_(comm), peers_(std::move(peers)), rank_(rank), tag_(tag), memory_(std::move(memory)) {
  new (&notes()[static_cast<std::size_t>(rank)]) Note;
}

std::uint64_t MpiNode::bytes(int ranks) {
  return note_bytes(static_cast<std::size_t>(ranks)) + node_memory(ranks) * sizeof(float);
}

std::span<float> MpiNode::memory() {
  const std::uint64_t before = note_bytes(peers_.size());
  return {reinterpret_cast<float*>(memory_.data() + before), (memory_.bytes() - before) / sizeof(float)};
}

// Messages rather than a counter in the memory: MPI goes on with all that this process owes others, and waits as the
// user has told it to. Each round a rank hears from one that has heard from twice as many.
void MpiNode::meet() {
  const auto where = [] {
    return std::string(
        "in a node's barrier (algorithm hierarchical or node_sum) for the other ranks of its node. Likely one is not in the same MPI_Allreduce, "
        "or is late or dead, or its first rank waits for the other nodes, and says so itself");
  };
  const StallGuard guard(rank_, static_cast<int>(peers_.size()), where);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto n = peers_.size(), mine = static_cast<std::size_t>(rank_);
  for (std::size_t step = 1; step < n; step *= 2)
    check_private(PMPI_Sendrecv(nullptr, 0, MPI_BYTE, peers_[(mine + step) % n], tag_, nullptr, 0, MPI_BYTE,
                                peers_[(mine + n - step) % n], tag_, comm_, MPI_STATUS_IGNORE),
                  "MPI_Sendrecv");
  std::atomic_thread_fence(std::memory_order_seq_cst);
  stand_aside();
}

MpiHierarchy::MpiHierarchy(PrivateWorld& world, MPI_Comm comm, int rank, const std::vector<int>& world_ranks,
                           const std::vector<std::vector<int>>& nodes)
    : world_(world), tag_(world.open_channel(comm, rank, static_cast<int>(world_ranks.size()))) {
  try {
    open(comm, rank, world_ranks, nodes);
  } catch (...) {
    world_.close_channel(tag_);
    throw;
  }
}

void MpiHierarchy::open(MPI_Comm comm, int rank, const std::vector<int>& world_ranks,
                        const std::vector<std::vector<int>>& nodes) {
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const auto& n) { return std::find(n.begin(), n.end(), rank) != n.end(); });
  const int in_node = static_cast<int>(std::find(node->begin(), node->end(), rank) - node->begin());
  std::vector<int> peers, leaders;
  insist([&] {
    peers.clear(), leaders.clear();
    for (const int r : *node) peers.push_back(world_ranks[static_cast<std::size_t>(r)]);
    for (const auto& n : nodes) leaders.push_back(world_ranks[static_cast<std::size_t>(n[0])]);
  });

  std::string failure;
  SharedMemory memory = share(world_.comm(), peers, in_node, tag_, failure);
  const int size = static_cast<int>(world_ranks.size());
  const int first = agree_on_nodes(comm, rank, size, failure.empty() ? size : rank, MPI_MIN);
  // Where there is no other node nobody has asked for it.
  const bool quiet = nodes.size() == 1;
  if (first == rank && (quiet || !told.exchange(true)))
    logged("a node without shared memory", [&] {
      log(quiet ? LogLevel::debug : LogLevel::warn,
          failure +
              "; communicators that this rank is in go without nodes, by an algorithm other than hierarchical and node_sum");
    });
  if (first < size)
    throw insist([&] {
      return Error(ErrorCode::out_of_memory,
                   "rank " + std::to_string(first) + " of the communicator has no memory to share");
    });
  memory.close_door();
  node_.emplace(world_.comm(), std::move(peers), in_node, tag_, std::move(memory));
  // A node's own messages have the other tag: its leader hears from both.
  if (in_node == 0)
    leaders_.emplace(world_.comm(), std::move(leaders), static_cast<int>(node - nodes.begin()), tag_ + 1, kForLeaders);
  hierarchy_ = {&*node_, leaders_ ? &*leaders_ : nullptr, static_cast<int>(nodes.size())};
}

MpiHierarchy::~MpiHierarchy() { world_.close_channel(tag_); }

}  // namespace crimp
