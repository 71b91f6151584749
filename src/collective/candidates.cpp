#include "collective/candidates.hpp"

#include <algorithm>
#include <cmath>

namespace crimp {
namespace {

// CRIMP_QUALITY: a function of codec and ranks.
bool good_enough(const AlgorithmEntry& entry, int ranks, const ChoiceQuery& query) {
  const double error = entry.error(*query.codec, ranks);
  if (error <= 1 || std::isinf(query.quality)) return true;
  return error <= query.quality && !entry_of(Algorithm::homomorphic).why_unsupported(*query.codec, ranks).empty();
}

}  // namespace

double predicted(const AlgorithmEntry& entry, const NetworkModel& network, const CodecCost& cost,
                 const ChoiceQuery& query) {
  const std::uint64_t chunk = entry.chunk_elements(query.chunk_setting, *query.codec, network.ranks);
  return cost.scan_s * static_cast<double>(query.count) + entry.cost({network, cost, query.count, chunk});
}

std::vector<Choice> candidates(const NetworkModel& network, const HierarchyModel* hierarchy, const CodecCost& cost,
                               const ChoiceQuery& query) {
  Choice none{.why = "cheapest by the model", .plain_s = network.plain.at(static_cast<double>(query.plain_bytes))};
  std::vector<Choice> all;
  const auto consider = [&](const AlgorithmEntry& entry, const NetworkModel& of, double more, bool nodes) {
    if (!entry.cost || (nodes && entry.mpi_adds) || !entry.why_unsupported(*query.codec, of.ranks).empty()) return;
    if (!good_enough(entry, of.ranks, query)) {
      none.limited = true;
      return;
    }
    Choice& c = all.emplace_back(none);
    c.algorithm = entry.algorithm;
    c.nodes = nodes;
    c.predicted_s = more + predicted(entry, of, cost, query);
  };
  for (const auto& entry : carriers()) consider(entry, network, 0, false);
  if (hierarchy && entry_of(Algorithm::hierarchical).why_unsupported(*query.codec, network.ranks).empty())
    for (const auto& entry : carriers())
      consider(entry, hierarchy->leaders,
               4 * static_cast<double>(query.count) * hierarchy->node.byte_s + 3 * hierarchy->node.barrier_s, true);
  if (none.limited)
    for (Choice& c : all) c.limited = true, c.why = "cheapest by the model within CRIMP_QUALITY";
  if (!all.empty()) return all;
  Choice& only = all.emplace_back(none);
  only.algorithm = first_algorithm(*query.codec, network.ranks);
  only.why = "the only one for this codec";
  return all;
}

Choice cheapest(std::span<const Choice> all) {
  Choice best = *std::min_element(all.begin(), all.end(),
                                  [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  // What plain MPI would do as fast is not worth its loss.
  best.plain = best.predicted_s > 0 && best.predicted_s >= best.plain_s;
  return best;
}

}  // namespace crimp
