// Nodes with ranks as threads.
#pragma once
#include <barrier>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collective/node.hpp"
#include "support/thread_transport.hpp"

namespace crimp::test {

struct NodeBoard {
  NodeBoard(int ranks, std::uint64_t floats) : notes(static_cast<std::size_t>(ranks)), memory(floats), barrier(ranks) {}
  std::vector<Node::Note> notes;
  std::vector<float> memory;
  std::barrier<> barrier;
};

class ThreadNode final : public Node {
 public:
  ThreadNode(NodeBoard& board, int rank) : board_(board), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(board_.notes.size()); }
  std::span<Note> notes() override { return board_.notes; }
  std::span<float> memory() override { return board_.memory; }
  std::function<void()> meeting;  // called ahead of every barrier, where there is one

 private:
  void meet() override {
    if (meeting) meeting();
    board_.barrier.arrive_and_wait();
  }
  NodeBoard& board_;
  int rank_;
};

struct NodeOptions {
  std::uint64_t memory = 0;  // floats of each node; 0: as many as are asked for
  RunOptions leaders;
};

// body(rank, node, leaders) on nodes * per_node threads; rank counts through the nodes. leaders is null where the rank
// does not lead.
inline void run_nodes(int nodes, int per_node, const std::function<void(int, ThreadNode&, ThreadTransport*)>& body,
                      const NodeOptions& options = {}) {
  run_ranks(
      nodes,
      [&](ThreadTransport& leaders) {
        NodeBoard board(per_node, options.memory ? options.memory : node_memory(per_node));
        const auto member = [&](int r, ThreadTransport* transport) {
          ThreadNode node(board, r);
          body(leaders.rank() * per_node + r, node, transport);
        };
        std::vector<std::thread> others;
        for (int r = 1; r < per_node; ++r) others.emplace_back(member, r, nullptr);
        member(0, &leaders);
        for (auto& t : others) t.join();
      },
      options.leaders);
}

// body(all, hierarchy) on a thread for every rank of nodes of such sizes: the transport of all ranks, whose numbers
// count through the nodes, and what the rank has of the hierarchy.
inline void run_hierarchy(const std::vector<int>& sizes, const std::function<void(ThreadTransport&, Hierarchy)>& body,
                          const RunOptions& leaders = {}) {
  // The leaders' transports are made by threads of their own, who do nothing but keep them.
  struct Seat {
    ThreadTransport* transport = nullptr;
    std::latch taken{1}, left{1};
  };
  const auto nodes = static_cast<int>(sizes.size());
  std::vector<std::unique_ptr<NodeBoard>> boards;
  std::vector<Seat> seats(sizes.size());
  std::vector<std::pair<std::size_t, int>> places;  // node and rank in it
  for (const int size : sizes) {
    for (int r = 0; r < size; ++r) places.emplace_back(boards.size(), r);
    boards.push_back(std::make_unique<NodeBoard>(size, node_memory(size)));
  }
  std::exception_ptr misused;
  std::thread keeper([&] {
    try {
      run_ranks(
          nodes,
          [&](ThreadTransport& transport) {
            Seat& seat = seats[static_cast<std::size_t>(transport.rank())];
            seat.transport = &transport;
            seat.taken.count_down();
            seat.left.wait();
          },
          leaders);
    } catch (...) {
      misused = std::current_exception();
    }
  });
  std::exception_ptr failed;
  try {
    run_ranks(static_cast<int>(places.size()), [&](ThreadTransport& all) {
      const auto [node_index, rank] = places[static_cast<std::size_t>(all.rank())];
      ThreadNode node(*boards[node_index], rank);
      Seat& seat = seats[node_index];
      if (rank == 0) seat.taken.wait();
      struct Leave {
        std::latch* from;
        ~Leave() {
          if (from) from->count_down();
        }
      };
      const Leave leave{rank == 0 ? &seat.left : nullptr};
      body(all, {&node, rank == 0 ? seat.transport : nullptr, nodes});
    });
  } catch (...) {
    failed = std::current_exception();
  }
  keeper.join();
  if (failed) std::rethrow_exception(failed);
  if (misused) std::rethrow_exception(misused);
}

}  // namespace crimp::test
