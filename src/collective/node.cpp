#include "collective/node.hpp"

#include <algorithm>
#include <map>

#include "collective/wire.hpp"
#include "core/types.hpp"
#include "schedule/layout.hpp"

namespace crimp {
namespace {

// Floats of a rank's values in node memory at once, twice: while a block is added, the next one is copied. 256 KiB stay
// in a core's L2; nodes of many ranks have shorter blocks, so that a communicator takes no more than about 8 MiB.
constexpr std::uint64_t kLongestBlock = 65536, kLeastBlock = kPayloadAlign / sizeof(float),
                        kMostMemory = std::uint64_t{2} << 20;

}  // namespace

std::vector<std::vector<int>> nodes_of(std::span<const int> host_of_rank, int per_node) {
  std::vector<std::vector<int>> nodes;
  std::map<int, std::size_t> filling;  // by host
  for (std::size_t r = 0; r < host_of_rank.size(); ++r) {
    const auto [at, first] = filling.try_emplace(host_of_rank[r], nodes.size());
    if (!first && per_node > 0 && nodes[at->second].size() == static_cast<std::size_t>(per_node))
      at->second = nodes.size();
    if (at->second == nodes.size()) nodes.emplace_back();
    nodes[at->second].push_back(static_cast<int>(r));
  }
  return nodes;
}

bool useful(const std::vector<std::vector<int>>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() > 1; });
}

std::uint64_t node_memory(int ranks) {
  const std::uint64_t slots = 2 * static_cast<std::uint64_t>(ranks);
  return slots * std::clamp(kMostMemory / slots / kLeastBlock * kLeastBlock, 2 * kLeastBlock, kLongestBlock);
}

// Two blocks of each rank, three where node_sum adds them.
std::uint64_t least_node_memory(int ranks) { return 3 * static_cast<std::uint64_t>(ranks) * kLeastBlock; }

std::uint64_t node_block(Node& node, std::uint64_t turns) {
  const std::uint64_t slots = turns * static_cast<std::uint64_t>(node.size());
  return std::min(kLongestBlock, node.memory().size() / slots / kLeastBlock * kLeastBlock);
}

// Sums form in the leader's slot of a turn. While it takes them away, the others may already fill their slots of that
// turn again.
std::optional<Error> sum_in_node(Node& node, const float* in, float* sums, std::uint64_t count,
                                 MemoryResource& memory) {
  const auto n = static_cast<std::uint64_t>(node.size()), mine = static_cast<std::uint64_t>(node.rank()),
             block = node_block(node, 2);
  Attempts attempt;
  const auto turn_of = [&](std::uint64_t b) { return node.memory().data() + b % 2 * n * block; };
  const auto take = [&](std::uint64_t b) {
    const std::uint64_t at = b * block;
    if (mine == 0) attempt([&] { memory.write(sums + at, turn_of(b), std::min(block, count - at) * sizeof(float)); });
  };
  const auto meet = [&] {
    if (attempt.failed) node.notes()[mine].failed = 1;
    node.barrier();
  };
  const std::uint64_t blocks = div_up(count, block);
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const std::uint64_t at = b * block, length = std::min(block, count - at);
    float* const turn = turn_of(b);
    attempt([&] { memory.read(turn + mine * block, in + at, length * sizeof(float)); });
    meet();
    if (b > 0) take(b - 1);
    const std::uint64_t from = length * mine / n, to = length * (mine + 1) / n;
    for (std::uint64_t r = 1; r < n; ++r)
      for (std::uint64_t i = from; i < to; ++i) turn[i] += turn[r * block + i];
  }
  meet();
  if (blocks > 0) take(blocks - 1);
  return attempt.failed;
}

std::optional<Error> share_in_node(Node& node, const Layout& layout, const float* sums, float* out, std::uint64_t count,
                                   MemoryResource& memory) {
  const std::uint64_t most = static_cast<std::uint64_t>(node.size()) * node_block(node, 2);
  Attempts attempt;
  SummedRuns runs(layout);
  for (std::uint64_t at = 0, b = 0; at < count; at += most, ++b) {
    const std::uint64_t end = std::min(count, at + most);
    float* const turn = node.memory().data() + b % 2 * most;
    if (node.rank() == 0) {
      attempt([&] { memory.read(turn, sums + at, (end - at) * sizeof(float)); });
      if (attempt.failed) node.notes()[0].failed = 1;
    }
    node.barrier();
    if (node.rank() == 0) continue;
    runs.each(at, end, [&](std::uint64_t from, std::uint64_t to) {
      attempt([&] { memory.write(out + from, turn + (from - at), (to - from) * sizeof(float)); });
    });
    if (node.notes()[0].failed) attempt([] { throw not_handed_on(); });
  }
  return attempt.failed;
}

}  // namespace crimp
