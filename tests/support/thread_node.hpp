// Nodes with ranks as threads.
#pragma once
#include <barrier>
#include <thread>
#include <vector>

#include "comm/node.hpp"
#include "support/thread_transport.hpp"

namespace crimp::test {

struct NodeBoard {
  explicit NodeBoard(int ranks) : notes(static_cast<std::size_t>(ranks)), barrier(ranks) {}
  std::vector<Node::Note> notes;
  std::vector<std::max_align_t> memory;
  std::barrier<> barrier;
};

class ThreadNode final : public Node {
 public:
  // no_memory: memory() fails, as it must on all ranks of a node.
  ThreadNode(NodeBoard& board, int rank, bool no_memory) : board_(board), rank_(rank), no_memory_(no_memory) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(board_.notes.size()); }
  std::span<Note> notes() override { return board_.notes; }
  std::byte* memory(std::uint64_t bytes) override {
    if (no_memory_) throw Error(ErrorCode::out_of_memory, "no memory in this test");
    if (bytes > board_.memory.size() * sizeof(std::max_align_t)) {
      barrier();
      if (rank_ == 0) board_.memory.resize(bytes / sizeof(std::max_align_t) + 1);
      barrier();
    }
    return reinterpret_cast<std::byte*>(board_.memory.data());
  }
  void barrier() override { board_.barrier.arrive_and_wait(); }

 private:
  NodeBoard& board_;
  int rank_;
  bool no_memory_;
};

struct NodeOptions {
  int no_memory = -1;  // this node has none
  RunOptions leaders;
};

// body(rank, node, leaders) on nodes * per_node threads; rank counts through the nodes. leaders is null where the rank does not lead.
inline void run_nodes(int nodes, int per_node, const std::function<void(int, ThreadNode&, ThreadTransport*)>& body, const NodeOptions& options = {}) {
  run_ranks(nodes, [&](ThreadTransport& leaders) {
    NodeBoard board(per_node);
    const auto member = [&](int r, ThreadTransport* transport) {
      ThreadNode node(board, r, leaders.rank() == options.no_memory);
      body(leaders.rank() * per_node + r, node, transport);
    };
    std::vector<std::thread> others;
    for (int r = 1; r < per_node; ++r) others.emplace_back(member, r, nullptr);
    member(0, &leaders);
    for (auto& t : others) t.join();
  }, options.leaders);
}

}  // namespace crimp::test
