// Nodes with ranks as threads.
#pragma once
#include <barrier>
#include <thread>
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
  void barrier() override { board_.barrier.arrive_and_wait(); }

 private:
  NodeBoard& board_;
  int rank_;
};

struct NodeOptions {
  std::uint64_t memory = 0;  // floats of each node; 0: as many as are asked for
  RunOptions leaders;
};

// body(rank, node, leaders) on nodes * per_node threads; rank counts through the nodes. leaders is null where the rank does not lead.
inline void run_nodes(int nodes, int per_node, const std::function<void(int, ThreadNode&, ThreadTransport*)>& body, const NodeOptions& options = {}) {
  run_ranks(nodes, [&](ThreadTransport& leaders) {
    NodeBoard board(per_node, options.memory ? options.memory : node_memory(per_node));
    const auto member = [&](int r, ThreadTransport* transport) {
      ThreadNode node(board, r);
      body(leaders.rank() * per_node + r, node, transport);
    };
    std::vector<std::thread> others;
    for (int r = 1; r < per_node; ++r) others.emplace_back(member, r, nullptr);
    member(0, &leaders);
    for (auto& t : others) t.join();
  }, options.leaders);
}

}  // namespace crimp::test
