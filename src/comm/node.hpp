// The ranks that share a machine's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "crimp/types.hpp"

namespace crimp {

class Node {
 public:
  // What each rank tells the others of its node. A rank writes its own; barrier() parts writing from reading.
  struct Note {
    std::uint64_t count = 0, layout = 0;  // of the call that it is in
    std::uint32_t sequence = 0;
    std::uint8_t flags = 0;  // WireFlag
    // The leader's, of the exchange: flags of all nodes, and the error, -1 for none.
    std::uint8_t all_flags = 0;
    bool thrown = false;
    int error = -1;
    char text[512] = {};
  };
  virtual ~Node() = default;
  virtual int rank() const = 0;  // within the node; 0 leads it
  virtual int size() const = 0;
  virtual std::span<Note> notes() = 0;  // one per rank
  // Collective over the node. Memory of at least so many bytes that all its ranks see; what it held before may be lost. Throws
  // Error{out_of_memory}, on all of them or on none.
  virtual std::byte* memory(std::uint64_t bytes) = 0;
  // Collective over the node; what was written before is seen behind.
  virtual void barrier() = 0;
};

class Transport;

// A communicator's nodes.
struct Hierarchy {
  Node* node;
  Transport* leaders;  // null on ranks that do not lead
  int nodes;
  Algorithm inner;  // between the leaders
};

// Bytes of node memory for a call of so many elements on a node of so many ranks.
std::uint64_t node_bytes(std::uint64_t count, int ranks);
// Collective over the node: its ranks' values added in rank order, into the node's memory (of node_bytes()); returns where the sums begin.
// They are complete behind the next barrier().
float* sum_in_node(Node&, std::byte* memory, const float* in, std::uint64_t count);

}  // namespace crimp
