#include "comm/chooser.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/fault.hpp"

namespace crimp {
namespace {

// A payload's size changes as residuals fill: measured anew at these calls with a codec.
bool due(std::uint64_t call) { return call == 0 || call == 16 || call == 256 || call == 4096; }
constexpr std::uint64_t kTriedAnew = 256;  // from this measurement on trials are repeated with it
// CRIMP_QUALITY: a function of codec and ranks.
bool good_enough(const AlgorithmEntry& entry, int ranks, const ChoiceQuery& query) {
  const double error = entry.error(*query.codec, ranks);
  if (error <= 1 || std::isinf(query.quality)) return true;
  return error <= query.quality && !entry_of(Algorithm::homomorphic).obstacle(*query.codec, ranks).empty();
}

int size_class(const ChoiceQuery& query) { return static_cast<int>(std::bit_width(query.count)); }

}  // namespace

double predicted(const AlgorithmEntry& entry, const NetworkModel& network, const CodecCost& cost, const ChoiceQuery& query) {
  const std::uint64_t chunk = entry.chunk_elements(query.chunk_setting, *query.codec, network.ranks);
  return cost.scan_s * static_cast<double>(query.count) + entry.cost({network, cost, query.count, chunk});
}

std::vector<Choice> candidates(const NetworkModel& network, const HierarchyModel* hierarchy, const CodecCost& cost, const ChoiceQuery& query) {
  Choice none{.why = "cheapest by the model", .plain_s = network.plain.at(static_cast<double>(query.plain_bytes))};
  std::vector<Choice> all;
  const auto consider = [&](const AlgorithmEntry& entry, const NetworkModel& of, double more, bool nodes) {
    if (!entry.cost || !entry.obstacle(*query.codec, of.ranks).empty() || entry.algorithm == Algorithm::hierarchical) return;
    if (!good_enough(entry, of.ranks, query)) {
      none.limited = true;
      return;
    }
    Choice& c = all.emplace_back(none);
    c.algorithm = nodes ? Algorithm::hierarchical : entry.algorithm;
    c.inner = entry.algorithm;
    c.predicted_s = more + predicted(entry, of, cost, query);
  };
  for (const auto& entry : algorithms()) consider(entry, network, 0, false);
  if (hierarchy && entry_of(Algorithm::hierarchical).obstacle(*query.codec, network.ranks).empty())
    for (const auto& entry : algorithms())
      consider(entry, hierarchy->leaders, 4 * static_cast<double>(query.count) * hierarchy->node.byte_s + 3 * hierarchy->node.barrier_s, true);
  if (none.limited)
    for (Choice& c : all) c.limited = true, c.why = "cheapest by the model within CRIMP_QUALITY";
  if (!all.empty()) return all;
  Choice& only = all.emplace_back(none);
  only.algorithm = first_algorithm(*query.codec, network.ranks);
  only.why = "the only one for this codec";
  return all;
}

Choice cheapest(const NetworkModel& network, const HierarchyModel* hierarchy, const CodecCost& cost, const ChoiceQuery& query) {
  const auto all = candidates(network, hierarchy, cost, query);
  Choice best = *std::min_element(all.begin(), all.end(), [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  // What plain MPI would do as fast is not worth its loss.
  best.plain = best.predicted_s > 0 && best.predicted_s >= best.plain_s;
  return best;
}

Choice Chooser::choose(Transport& transport, const ChoiceQuery& query, const PlainAllreduce& plain, const std::function<CodecCost()>& time) {
  const auto can = [&](const AlgorithmEntry& entry, int ranks) {
    return entry.algorithm != Algorithm::hierarchical && entry.obstacle(*query.codec, ranks).empty();
  };
  const auto first = [&](int ranks) {
    for (const auto& entry : algorithms())
      if (can(entry, ranks)) return entry.algorithm;
    throw Error(ErrorCode::codec_unknown, "no algorithm of this build runs the codec " + query.codec->spec());
  };
  const std::string no_nodes = entry_of(Algorithm::hierarchical).obstacle(*query.codec, transport.size());
  if (forced_ == "hierarchical" && hierarchy_ && no_nodes.empty()) return {.algorithm = Algorithm::hierarchical, .why = "CRIMP_ALGORITHM", .inner = first(hierarchy_->nodes)};
  if (forced_ != "auto") {
    const AlgorithmEntry* entry = find_algorithm(forced_);
    if (entry && can(*entry, transport.size())) return {.algorithm = entry->algorithm, .why = "CRIMP_ALGORITHM"};
    return {.algorithm = first(transport.size()), .why = forced_ == "hierarchical" && no_nodes.empty() ? "no nodes of several ranks" : "CRIMP_ALGORITHM cannot run the codec"};
  }
  if (query.codec->traits().whole_tensors) return {.algorithm = first(transport.size()), .why = "the codec's only algorithm"};
  if (network_.plain.empty()) {
    network_ = measure_network(transport, plain);
    if (hierarchy_) hierarchy_model_ = measure_hierarchy(transport, *hierarchy_, between_leaders_);
    if (!hierarchy_model_) hierarchy_ = nullptr;
  }
  Measured& codec = codecs_[query.codec];
  if (due(codec.calls)) {
    codec.cost = measure_codec(transport, *query.codec, time);
    if (codec.calls >= kTriedAnew) codec.trials.clear();
  }
  ++codec.calls;  // not where a rank lacked memory: then the next call measures
  if (fault::fires("slow_link")) return cheapest(network_, hierarchy_ ? &*hierarchy_model_ : nullptr, codec.cost, query);
  const auto all = candidates(network_, hierarchy_ ? &*hierarchy_model_ : nullptr, codec.cost, query);
  return codec.trials.try_emplace(size_class(query), all).first->second.choose(transport, all, query.count);
}

void Chooser::took(const ChoiceQuery& query, const Choice& choice, double s) {
  if (!choice.trial) return;
  codecs_.at(query.codec).trials.at(size_class(query)).took(s, query.count);
}

}  // namespace crimp
