// The ranks of a node add their values exactly in shared memory, the leaders exchange compressed sums by any other algorithm, all ranks copy
// the result. Only the leaders' values are encoded, so only they have residuals.
#include <algorithm>
#include <cstring>

#include "comm/algorithms.hpp"
#include "comm/node.hpp"
#include "core/trace.hpp"
#include "crimp/wire.hpp"

namespace crimp {
namespace {

// Of a rank's values in node memory at once, twice: while a block is added, the next one is copied. 256 KiB stay in a core's L2.
constexpr std::uint64_t kBlock = 65536;

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
  float* sums = nullptr;
  if (same && !flags) {
    try {
      sums = sum_in_node(node, node.memory(node_bytes(call.count, node.size())), call.in, call.count);
    } catch (const Error&) {
      flags |= kFlagNoMemory;
    }
  }
  node.barrier();
  CollectiveResult result;
  result.encode_s = noted("node sum", begin);

  begin = Clock::now();
  std::optional<Error> thrown;
  if (leads) {
    CollectiveCall between = call;
    between.algorithm = h.inner;
    between.in = between.out = sums;
    // The other nodes must not wait for this one: a call number that is none makes all leaders see the disagreement.
    if (!same) flags |= kFlagNoMemory, between.sequence ^= 0x80000000u;
    between.flags = flags;
    try {
      CollectiveResult inner = allreduce_compressed(*h.leaders, flags ? nullptr : arena, workers, between, trace);
      inner.encode_s += result.encode_s;
      result = std::move(inner);
    } catch (const Error& e) {
      thrown = e;
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
  if (!leads) sums = reinterpret_cast<float*>(node.memory(0));
  for (const Segment& s : call.layout->segments)
    if (s.use == Segment::Use::sum && s.count) std::memcpy(call.out + s.offset, sums + s.offset, s.count * sizeof(float));
  result.decode_s += noted("node copy", begin);
  return result;
}

}  // namespace

std::uint64_t node_bytes(std::uint64_t count, int ranks) {
  return (round_up(count, kPayloadAlign) + 2 * kBlock * static_cast<std::uint64_t>(ranks)) * sizeof(float);
}

// The sums come first, so that they are found again without knowing the ranks.
float* sum_in_node(Node& node, std::byte* memory, const float* in, std::uint64_t count) {
  auto* const sums = reinterpret_cast<float*>(memory);
  auto* const blocks = sums + round_up(count, kPayloadAlign);
  const auto n = static_cast<std::uint64_t>(node.size()), mine = static_cast<std::uint64_t>(node.rank());
  for (std::uint64_t at = 0, b = 0; at < count; at += kBlock, ++b) {
    const std::uint64_t length = std::min(kBlock, count - at);
    float* const turn = blocks + b % 2 * n * kBlock;
    std::memcpy(turn + mine * kBlock, in + at, length * sizeof(float));
    node.barrier();
    const std::uint64_t from = length * mine / n, to = length * (mine + 1) / n;
    float* const sum = sums + at;
    std::memcpy(sum + from, turn + from, (to - from) * sizeof(float));
    for (std::uint64_t r = 1; r < n; ++r)
      for (std::uint64_t i = from; i < to; ++i) sum[i] += turn[r * kBlock + i];
  }
  return sums;
}

AlgorithmEntry hierarchical_algorithm() {
  return {
      .algorithm = Algorithm::hierarchical,
      .name = "hierarchical",
      .summary = "exact sums within each node in shared memory, another algorithm between the nodes' leaders",
      .obstacle = [](const Codec& codec, int) -> std::string {
        if (codec.traits().whole_tensors) return "the codec works on whole tensors; its algorithm is low_rank";
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
            return arena_bytes(between, call.hierarchy->nodes);
          },
      .run = run,
      .cost = nullptr,
      .sums_encoded = true,
  };
}

}  // namespace crimp
