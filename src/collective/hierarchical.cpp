// The ranks of a node add their values exactly in shared memory, the leaders exchange compressed sums by any other algorithm, all ranks copy
// the result. Only the leaders' values are encoded, so only they have residuals.
#include <algorithm>
#include <cstring>
#include <map>

#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "core/trace.hpp"
#include "collective/wire.hpp"

namespace crimp {
namespace {

// Floats of a rank's values in node memory at once, twice: while a block is added, the next one is copied. 256 KiB stay in a core's L2;
// nodes of many ranks have shorter blocks, so that a communicator takes no more than about 8 MiB.
constexpr std::uint64_t kBlock = 65536, kLeastBlock = kPayloadAlign / sizeof(float), kMostMemory = std::uint64_t{2} << 20;

std::uint64_t block_of(Node& node) {
  const std::uint64_t slots = 2 * static_cast<std::uint64_t>(node.size());
  return std::min(kBlock, node.memory().size() / slots / kLeastBlock * kLeastBlock);
}

// What the leader learned, for its node.
void publish(Node::Note& note, const CollectiveResult& result, const Error* thrown) {
  note.all_flags = result.flags;
  note.thrown = thrown;
  const Error* error = thrown ? thrown : result.error ? &*result.error : nullptr;
  note.error = error ? static_cast<int>(error->code()) : -1;
  if (error) std::strncpy(note.text, error->what(), sizeof note.text - 1);
}

CollectiveResult run(Transport&, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace) {
  const Hierarchy& h = *call.hierarchy;
  Node& node = *h.node;
  const bool leads = node.rank() == 0;
  const auto notes = node.notes();
  const auto mine = static_cast<std::size_t>(node.rank());
  const auto noted = [&](const char* name, Clock::time_point begin) {
    const auto end = Clock::now();
    if (trace) trace->add(name, call.sequence, 0, begin, end);
    return seconds(end - begin);
  };

  auto begin = Clock::now();
  notes[mine].count = call.count;
  notes[mine].layout = call.layout->digest();
  notes[mine].sequence = call.sequence;
  notes[mine].flags = call.flags;
  node.barrier();
  std::uint8_t flags = 0;
  bool same = true;
  for (const auto& note : notes) {
    flags |= note.flags;
    same = same && note.count == notes[0].count && note.layout == notes[0].layout && note.sequence == notes[0].sequence;
  }
  // In memory of the leader's own: until all nodes are known to compress, its buffers stay as they are.
  float* const sums = leads && arena ? reinterpret_cast<float*>(arena->take(call.count * sizeof(float))) : nullptr;
  if (same && !flags) sum_in_node(node, call.in, sums, call.count);
  CollectiveResult result;
  result.encode_s = noted("node sum", begin);

  begin = Clock::now();
  std::optional<Error> thrown;
  if (leads) {
    CollectiveCall between = call;
    between.algorithm = h.inner;
    between.in = sums;
    // The other nodes must not wait for this one: a call number that is none makes all leaders see the disagreement.
    if (!same) flags |= kFlagNoMemory, between.sequence ^= 0x80000000u;
    between.flags = flags;
    try {
      CollectiveResult inner = allreduce_compressed(*h.leaders, flags ? nullptr : arena, workers, between, trace);
      inner.encode_s += result.encode_s;
      result = std::move(inner);
    } catch (const Error& e) {
      thrown = e;
    } catch (const std::exception& e) {  // the node waits
      thrown = Error(ErrorCode::out_of_memory, e.what());
    }
    publish(notes[0], result, thrown ? &*thrown : nullptr);
  }
  node.barrier();
  if (!leads) {
    result.wire_s = noted("leader", begin);
    result.flags = notes[0].all_flags;
    if (notes[0].error >= 0) {
      const Error error(static_cast<ErrorCode>(notes[0].error), std::string("the leader of this rank's node says: ") + notes[0].text);
      if (notes[0].thrown) thrown = error;
      else result.error = error;
    }
  }
  if (thrown) throw Error(*thrown);
  if (result.flags || result.error) return result;

  begin = Clock::now();
  share_in_node(node, *call.layout, call.out, call.out, call.count);
  result.decode_s += noted("node copy", begin);
  return result;
}

}  // namespace

std::vector<std::vector<int>> nodes_of(std::span<const int> host_of_rank, int per_node) {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> filling;  // by host
  for (std::size_t r = 0; r < host_of_rank.size(); ++r) {
    const auto [at, first] = filling.try_emplace(host_of_rank[r], nodes.size());
    if (!first && per_node > 0 && nodes[at->second].size() == static_cast<std::size_t>(per_node)) at->second = nodes.size();
    if (at->second == nodes.size()) nodes.emplace_back();
    nodes[at->second].push_back(static_cast<int>(r));
  }
  return nodes;
}

bool useful(const std::vector<std::vector<int>>& nodes) {
  return nodes.size() > 1 && std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() > 1; });
}

std::uint64_t node_memory(int ranks) {
  const std::uint64_t slots = 2 * static_cast<std::uint64_t>(ranks);
  return slots * std::clamp(kMostMemory / slots / kLeastBlock * kLeastBlock, kLeastBlock, kBlock);
}

std::uint64_t least_node_memory(int ranks) { return 2 * static_cast<std::uint64_t>(ranks) * kLeastBlock; }

// Sums form in the leader's slot of a turn. While it takes them away, the others may already fill their slots of that turn again.
void sum_in_node(Node& node, const float* in, float* sums, std::uint64_t count) {
  const auto n = static_cast<std::uint64_t>(node.size()), mine = static_cast<std::uint64_t>(node.rank()), block = block_of(node);
  const auto turn_of = [&](std::uint64_t b) { return node.memory().data() + b % 2 * n * block; };
  const auto take = [&](std::uint64_t b) {
    const std::uint64_t at = b * block;
    if (mine == 0) std::memcpy(sums + at, turn_of(b), std::min(block, count - at) * sizeof(float));
  };
  const std::uint64_t blocks = div_up(count, block);
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const std::uint64_t at = b * block, length = std::min(block, count - at);
    float* const turn = turn_of(b);
    std::memcpy(turn + mine * block, in + at, length * sizeof(float));
    node.barrier();
    if (b > 0) take(b - 1);
    const std::uint64_t from = length * mine / n, to = length * (mine + 1) / n;
    for (std::uint64_t r = 1; r < n; ++r)
      for (std::uint64_t i = from; i < to; ++i) turn[i] += turn[r * block + i];
  }
  node.barrier();
  if (blocks > 0) take(blocks - 1);
}

void share_in_node(Node& node, const Layout& layout, const float* sums, float* out, std::uint64_t count) {
  const std::uint64_t most = static_cast<std::uint64_t>(node.size()) * block_of(node);
  auto segment = layout.segments.begin();
  for (std::uint64_t at = 0, b = 0; at < count; at += most, ++b) {
    const std::uint64_t end = std::min(count, at + most);
    float* const turn = node.memory().data() + b % 2 * most;
    if (node.rank() == 0) std::memcpy(turn, sums + at, (end - at) * sizeof(float));
    node.barrier();
    if (node.rank() == 0) continue;
    for (; segment != layout.segments.end(); ++segment) {
      const std::uint64_t from = std::max(at, segment->offset), to = std::min(end, segment->offset + segment->count);
      if (segment->use == Segment::Use::sum && from < to) std::memcpy(out + from, turn + (from - at), (to - from) * sizeof(float));
      if (segment->offset + segment->count > end) break;
    }
  }
}

AlgorithmEntry hierarchical_algorithm() {
  return {
      .algorithm = Algorithm::hierarchical,
      .name = "hierarchical",
      .summary = "exact sums within each node in shared memory, another algorithm between the nodes' leaders",
      .needs = [](const Codec& codec, int) -> std::string {
        if (codec.traits().votes) return "the codec counts the ranks' votes, and signs of nodes' sums would be votes of nodes";
        // Where a tensor is compressed in one call and summed exactly in the next, the leaders' would be of their nodes, the others' of themselves.
        if (codec.memory().kind == MemoryKind::momentum) return "its momentum is of each rank's own gradients (memory=momentum)";
        return {};
      },
      .chunk_elements = [](std::uint64_t setting, const Codec&, int) { return setting; },
      .arena_bytes =
          [](const CollectiveCall& call, int) {
            if (!call.hierarchy->leaders) return std::uint64_t{0};
            CollectiveCall between = call;
            between.algorithm = call.hierarchy->inner;
            return arena_bytes(between, call.hierarchy->nodes) + Arena::padded(call.count * sizeof(float));
          },
      .run = run,
      .cost = nullptr,
      .sums_encoded = true,
  };
}

}  // namespace crimp
