// The ranks that share a machine's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/node_devices.hpp"
#include "core/clock.hpp"
#include "core/types.hpp"
#include "memory/memory_resource.hpp"
#include "schedule/delay_control.hpp"

namespace crimp {

struct Layout;

class Node {
 public:
  // What each rank tells the others of its node. A rank writes its own; barrier() parts writing from reading.
  struct Note {
    std::uint64_t count = 0, layout = 0;  // of the call that it is in
    std::uint32_t sequence = 0;
    Dtype dtype = Dtype::f32;                  // the caller's
    std::uint8_t flags = 0;                    // WireFlag
    DelayNote delay;                           // CallBuffers'
    int device = -1;                           // where its values lie (Backend::device)
    std::uint8_t failed = 0;                   // it has no values to add, or none of the sums
    std::uint8_t has_slot = 0, has_slots = 0;  // of NodeDevices: its own, and all
    SharedSlots::Handle slot = {};
    // The leader's, of the exchange: flags of all nodes, and the error, -1 for none.
    std::uint8_t all_flags = 0;
    DelayNote all_delays;
    bool thrown = false;
    int error = -1;
    char text[512] = {};
  };
  virtual ~Node() = default;
  virtual int rank() const = 0;  // within the node; 0 leads it
  virtual int size() const = 0;
  virtual std::span<Note> notes() = 0;  // one per rank
  // Seen by all ranks of the node, through which values pass in blocks: at least least_memory(), more makes the blocks
  // longer.
  virtual std::span<float> memory() = 0;
  // Collective over the node; what was written before is seen behind. What a rank's other messages need goes on while
  // it waits.
  void barrier() {
    const auto begin = Clock::now();
    meet();
    waited_s_ += seconds(Clock::now() - begin);
  }
  double waited_s() const { return waited_s_; }  // this rank, in all barriers so far

  NodeDevices devices;
  std::uint64_t turn = 0;  // of the memory's parts, the next one (collective/node_sum.cpp); equal on all ranks

 private:
  virtual void meet() = 0;  // barrier()
  double waited_s_ = 0;
};

class Transport;

// A communicator's nodes.
struct Hierarchy {
  Node* node;
  Transport* leaders;  // null on ranks that do not lead
  int nodes;           // 1: all ranks share its memory, and no leader has another to talk to
};

// Which ranks of a communicator are a node: those of one host, in rank order, or so many of them in a row where
// per_node is not 0 (CRIMP_NODE_SIZE). Nodes are in the order of their first ranks, which lead them.
std::vector<std::vector<int>> nodes_of(std::span<const int> host_of_rank, int per_node);
// Nodes of one rank each need no hierarchy.
bool useful(const std::vector<std::vector<int>>& nodes);

// Floats of node memory: what is asked for, and the least that works.
std::uint64_t node_memory(int ranks);
std::uint64_t least_node_memory(int ranks);
// Floats of each rank's that pass through it at once, where it is cut into so many turns.
std::uint64_t node_block(Node&, std::uint64_t turns);
// Collective over the node: its ranks' values added in rank order, to the leader's `sums` (elsewhere not looked at).
// Both lie in `memory`. What fails on this rank is returned, and noted for the others.
std::optional<Error> sum_in_node(Node&, const float* in, float* sums, std::uint64_t count,
                                 MemoryResource& memory = host_memory());
// Collective over the node: the leader's sums to the other ranks' `out`, where the layout's segments are summed.
// Returns what keeps this rank from having them, or from handing them on.
std::optional<Error> share_in_node(Node&, const Layout&, const float* sums, float* out, std::uint64_t count,
                                   MemoryResource& memory = host_memory());

// Collective over the node: what all ranks give added in rank order, to all; `out` may be `in` (node_sum.cpp).
void sum_on_node(Node&, const float* in, float* out, std::uint64_t count);

}  // namespace crimp
