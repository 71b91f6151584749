#include "collective/forced.hpp"

#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "core/reserve.hpp"

namespace crimp {

Choice forced(const std::string& name, const ChoiceQuery& query, int ranks, bool device,
              const std::function<const Hierarchy*()>& open_nodes) {
  const Codec& codec = *query.codec;
  const bool open = device && query.chunk_setting == 0 && query.radix <= 1;  // relays copy bodies on the host
  const auto carriage = [&](Algorithm algorithm, bool between_nodes = false) {
    return Carriage{algorithm, between_nodes, open && in_device_chunks(entry_of(algorithm), codec) ? kDeviceChunk : 0};
  };
  if (query.collective != Collective::allreduce)
    return {.carriage = carriage(scattering().algorithm), .why = "the collective's only algorithm"};
  const AlgorithmEntry* const entry = find_algorithm(name);
  const bool runs = entry && insist([&] { return entry->why_unsupported(codec, ranks).empty(); });
  const auto first = [&](int among) { return insist([&] { return first_algorithm(codec, among); }); };
  if (runs && entry->plan && entry->fits(query, ranks))
    return {.carriage = carriage(entry->algorithm), .why = "CRIMP_ALGORITHM"};
  const bool on_node = runs && entry->algorithm == Algorithm::node_sum && query.exact,
             in_nodes = runs && entry->algorithm == Algorithm::hierarchical;
  const Hierarchy* const nodes = on_node || in_nodes ? open_nodes() : nullptr;
  if (on_node && nodes && nodes->nodes == 1)
    return {.carriage = {.algorithm = Algorithm::node_sum, .nodes = true}, .why = "CRIMP_ALGORITHM"};
  if (in_nodes && nodes && nodes->nodes > 1)
    return {.carriage = carriage(first(nodes->nodes), true), .why = "CRIMP_ALGORITHM"};
  return {.carriage = carriage(first(ranks)),
          .instead = runs,
          .why = !runs         ? "CRIMP_ALGORITHM cannot run the codec"
                 : entry->plan ? "CRIMP_ALGORITHM is for shorter calls"
                 : entry->algorithm == Algorithm::node_sum
                     ? (query.controlled ? "CRIMP_CONTROL changes codecs, and node_sum encodes nothing"
                        : query.exact    ? "not all ranks share a node's memory"
                                         : "the call has several codecs, tensors summed exactly, or no plain sum")
                 : nodes && nodes->nodes == 1 ? "all ranks are on one node, which CRIMP_ALGORITHM=node_sum is for"
                                              : "no nodes of several ranks"};
}

}  // namespace crimp
