#include "collective/candidates.hpp"

namespace crimp {
namespace {

std::vector<Choice> of_codec(const ChoiceQuery& query, const NetworkModel& network, const HierarchyModel* hierarchy,
                             const CodecCost& cost) {
  const Codec& codec = *query.codec;
  if (query.collective != Collective::allreduce) {
    const AlgorithmEntry& entry = scattering();
    const auto predicted = entry.predicted(network, cost, query);
    // MPI's own allreduce of many elements is this and as much again.
    return {{.carriage = {.algorithm = entry.algorithm, .chunk_setting = predicted.chunk_setting},
             .why = "cheapest by the model",
             .predicted_s = predicted.s,
             .plain_s = network.plain.at(static_cast<double>(query.plain_bytes)) / 2}};
  }
  const auto among_ranks = suitable(codec, network.ranks, query.quality);
  Suitable among_nodes;
  const bool one_node = hierarchy && hierarchy->leaders.ranks == 1;
  if (hierarchy && !one_node && entry_of(Algorithm::hierarchical).why_unsupported(codec, network.ranks).empty())
    among_nodes = suitable(codec, hierarchy->leaders.ranks, query.quality, true);

  Choice none{.why = "cheapest by the model", .plain_s = network.plain.at(static_cast<double>(query.plain_bytes))};
  none.limited = among_ranks.limited || among_nodes.limited;
  if (none.limited) none.why = "cheapest by the model within CRIMP_QUALITY";
  std::vector<Choice> all;
  const auto add = [&](const Suitable& of, const NetworkModel& link, double more, bool nodes) {
    for (const AlgorithmEntry* entry : of) {
      if (entry->one_exchange && (cost.launch_s > 0 || !entry->fits(query, link.ranks))) continue;
      const auto consider = [&](const ChoiceQuery& as) {
        const auto predicted = entry->predicted(link, cost, as);
        Choice& c = all.emplace_back(none);
        c.carriage = {entry->algorithm, nodes, predicted.chunk_setting, predicted.radix};
        c.predicted_s = more + predicted.s;
        return predicted.radix;
      };
      // What relays gain on a network is worth a trial: the model's word alone is not enough.
      if (consider(query) <= 1 || query.radix != 0) continue;
      ChoiceQuery directly = query;
      directly.radix = 1;
      consider(directly);
    }
  };
  add(among_ranks, network, 0, false);
  const auto in_node = [&](double barriers) {
    return 4 * static_cast<double>(query.count) * hierarchy->node.byte_s + barriers * hierarchy->node.barrier_s;
  };
  if (one_node && query.exact && cost.launch_s == 0) {
    Choice& c = all.emplace_back(none);
    c.carriage = {.algorithm = Algorithm::node_sum, .nodes = true};
    c.why = "cheapest by the model, exact";
    c.predicted_s = cost.scan_s * static_cast<double>(query.count) + in_node(2);
  } else if (hierarchy && !one_node) add(among_nodes, hierarchy->leaders, in_node(3), true);
  if (!all.empty()) return all;
  Choice& only = all.emplace_back(none);
  only.carriage.algorithm = first_algorithm(*query.codec, network.ranks);
  only.why = "the only one for this codec";
  return all;
}

}  // namespace

std::vector<Choice> candidates(const NetworkModel& network, const HierarchyModel* hierarchy, const CodecCost& cost,
                               const ChoiceQuery& query, const CodecCost* halves) {
  std::vector<Choice> all = of_codec(query, network, hierarchy, cost);
  if (!halves || !query.halves) return all;
  for (Choice& choice : of_codec(query.in_halves(), network, hierarchy, *halves)) {
    choice.carriage.halves = true;
    choice.why = "cheapest by the model, in 16 bits";
    all.push_back(choice);
  }
  return all;
}

}  // namespace crimp
