// All ranks share a node's memory: they add their values there, exactly, in rank order in float32. Nothing is encoded,
// and no headers are sent: what they would say stands in the node's notes.
#include <algorithm>
#include <cstring>
#include <optional>

#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "collective/wire.hpp"
#include "core/clock.hpp"
#include "core/reserve.hpp"
#include "core/trace.hpp"

namespace crimp {
namespace {

// Floats of a rank's values in the node's memory at once, three times: while one block's sums are read, the next block
// is added, and the one after it copied. So a block takes one barrier, and so does a call's last look at another's.
constexpr std::uint64_t kTurns = 3;

struct Blocks {
  Blocks(Node& in, std::uint64_t elements)
      : node(in), count(elements), n(static_cast<std::uint64_t>(in.size())),
        mine(static_cast<std::uint64_t>(in.rank())), length(node_block(in, kTurns)) {}
  std::uint64_t blocks() const { return div_up(count, length); }
  std::uint64_t elements(std::uint64_t b) const { return std::min(length, count - b * length); }
  // Of block b, a slot for each rank; the sums form in the first.
  float* slots(std::uint64_t b) const { return node.memory().data() + (node.turn + b) % kTurns * n * length; }

  void fill(std::uint64_t b, const float* in) const {
    std::memcpy(slots(b) + mine * length, in + b * length, elements(b) * sizeof(float));
  }
  // This rank's share of the block.
  void add(std::uint64_t b) const {
    const std::uint64_t from = elements(b) * mine / n, to = elements(b) * (mine + 1) / n;
    float* const sums = slots(b);
    for (std::uint64_t r = 1; r < n; ++r) {
      const float* const other = sums + r * length;
      for (std::uint64_t i = from; i < to; ++i) sums[i] += other[i];
    }
  }
  Node& node;
  std::uint64_t count, n, mine, length;
};

// From the first barrier on, behind which all slots of block 0 are filled. read(b, sums) for every block.
template <class Read>
void add_blocks(const Blocks& all, const float* in, Read&& read) {
  const std::uint64_t blocks = all.blocks();
  for (std::uint64_t b = 0; b < blocks; ++b) {
    all.add(b);
    if (b + 1 < blocks) all.fill(b + 1, in);
    all.node.barrier();
    read(b, all.slots(b));
  }
  all.node.turn = (all.node.turn + blocks) % kTurns;
}

class NodeSumRoute final : public RoutePlan {
 public:
  NodeSumRoute(const PartPlan& of, const Hierarchy& of_node)
      : RoutePlan(Algorithm::node_sum, of, of.count, of_node.node->size()), node(*of_node.node) {
    name = entry_of(Algorithm::node_sum).name;
    encodes = false;
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  RouteBytes bytes(const std::vector<powersgd::Extents*>&) const override { return {}; }

  Node& node;
};

class NodeSum final : public Exchange {
 public:
  NodeSum(const NodeSumRoute& route, const CallBuffers& call, Trace* trace)
      : part_(route.part), call_(call), trace_(trace), blocks_(route.node, route.part.count) {}
  void start() override {}
  bool progress() override { return false; }

  CollectiveResult finish() override {
    CollectiveResult result;
    const auto begin = Clock::now();
    Node& node = blocks_.node;
    const auto notes = node.notes();
    auto& mine = notes[static_cast<std::size_t>(node.rank())];
    mine.count = part_.count;
    mine.layout = part_.layout->digest();
    mine.sequence = call_.sequence;
    mine.dtype = part_.dtype;
    mine.flags = call_.flags;
    const float* const in = call_.flags ? nullptr : call_.in.floats();
    if (in && blocks_.blocks() > 0) blocks_.fill(0, in);
    node.barrier();
    for (const auto& note : notes) result.flags |= note.flags;
    const std::string differs = difference(notes);
    if (result.flags || !differs.empty()) {
      node.barrier();  // until all have read it no note becomes another call's
      if (!differs.empty()) throw Error(ErrorCode::call_differs, differs);
      return result;
    }
    SummedRuns runs(*part_.layout);
    float* const out = call_.out.floats();
    add_blocks(blocks_, in, [&](std::uint64_t b, const float* sums) {
      const std::uint64_t at = b * blocks_.length;
      runs.each(at, at + blocks_.elements(b), [&](std::uint64_t from, std::uint64_t to) {
        std::memcpy(out + from, sums + (from - at), (to - from) * sizeof(float));
      });
    });
    // What goes through memory, once each way.
    result.sent_bytes = result.received_bytes = part_.count * sizeof(float);
    const auto end = Clock::now();
    if (trace_) trace_->add("node exchange", call_.sequence, 0, begin, end);
    result.wire_s = seconds(end - begin);
    return result;
  }

 private:
  // The same on all ranks; empty where they are in the same call.
  static std::string difference(std::span<const Node::Note> notes) {
    for (std::size_t r = 1; r < notes.size(); ++r) {
      const auto say = [&](auto what) { return insist([&] { return not_in_one("MPI_Allreduce", r, what()); }); };
      const Node::Note &its = notes[r], &first = notes[0];
      if (its.sequence != first.sequence)
        return say([&] { return differing("the call number", its.sequence, first.sequence, kOnFirst); });
      if (its.dtype != first.dtype)
        return say([&] {
          return differing("the element type", std::string(name_of(its.dtype)), name_of(first.dtype), kOnFirst);
        });
      if (its.count != first.count)
        return say([&] { return differing("the element count", its.count, first.count, kOnFirst); });
      if (its.layout != first.layout) return say([] { return other_tensors(kOnFirst); });
    }
    return {};
  }

  const PartPlan& part_;
  const CallBuffers& call_;
  Trace* trace_;
  const Blocks blocks_;
};

std::unique_ptr<Exchange> NodeSumRoute::exchange(Transport&, const CallBuffers& call, Workers&, Trace* trace) const {
  return std::make_unique<NodeSum>(*this, call, trace);
}

}  // namespace

std::shared_ptr<const RoutePlan> sum_on_node(const PartPlan& part, const Hierarchy& node) {
  return std::make_shared<const NodeSumRoute>(part, node);
}

void sum_on_node(Node& node, const float* in, float* out, std::uint64_t count) {
  const Blocks blocks(node, count);
  if (count > 0) blocks.fill(0, in);
  node.barrier();
  add_blocks(blocks, in, [&](std::uint64_t b, const float* sums) {
    std::memcpy(out + b * blocks.length, sums, blocks.elements(b) * sizeof(float));
  });
}

AlgorithmEntry node_sum_algorithm() {
  return {
      .algorithm = Algorithm::node_sum,
      .name = "node_sum",
      .summary = "exact sums in shared memory, where all ranks are on one node; nothing is encoded",
      .needs = [](const Codec& codec, int) -> std::string {
        if (codec.traits().votes) return "the codec counts the ranks' votes, and nothing is encoded";
        if (codec.feedback().kept() && codec.feedback().kind != FeedbackKind::residual)
          return "its memory makes another result than a sum (memory=" + std::string(name_of(codec.feedback().kind)) +
                 "), and nothing is encoded";
        return {};
      },
      .chunk_elements = [](std::uint64_t setting, const Codec&, int) { return setting; },
      .plan = nullptr,
      .cost = nullptr,
  };
}

}  // namespace crimp
