#include "collective/chooser.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

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
    if (!entry.cost || (nodes && entry.mpi_adds) || !entry.obstacle(*query.codec, of.ranks).empty()) return;
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
  if (hierarchy && entry_of(Algorithm::hierarchical).obstacle(*query.codec, network.ranks).empty())
    for (const auto& entry : carriers())
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

const Hierarchy* Chooser::nodes() {
  if (const auto open = std::exchange(open_nodes_, nullptr)) hierarchy_ = open();
  return hierarchy_;
}

// Takes what was measured for these ranks before, where all have the same of it: threads publish in any order.
void Chooser::adopt(Transport& transport) {
  if (!shared_) return;
  auto found = shared_->find(group_);
  const std::uint64_t digest = found ? found->digest() : 0;
  const auto low = static_cast<double>(digest & 0xffffffffu), high = static_cast<double>(digest >> 32);
  double all[5] = {low, high, -low, -high, -static_cast<double>(shared_->calls(group_))};
  agree_on_largest(transport, all);
  if (calls_ == 0) calls_of_group_ = static_cast<std::uint64_t>(-all[4]);
  if (all[0] != -all[2] || all[1] != -all[3] || !found) return;
  adopted_ = std::move(found);
  network_ = adopted_->network;
  hierarchy_model_ = adopted_->hierarchy;
}

void Chooser::publish() const {
  if (!shared_) return;
  Models models{network_, hierarchy_model_, {}};
  for (const auto& [codec, measured] : codecs_) {
    if (measured.calls == 0) continue;
    auto& of = models.codecs[codec->spec()];
    of.cost = measured.cost;
    for (const auto& [size, trials] : measured.trials)
      if (trials.finished()) of.trials.emplace(size, trials);
  }
  shared_->publish(group_, std::move(models));
}

void Chooser::forget() {
  network_ = {};
  hierarchy_model_.reset();
  adopted_.reset();
  codecs_.clear();
  calls_ = 0;
}

Choice Chooser::decide(Transport& transport, const ChoiceQuery& query, Measured& codec, bool early) {
  const HierarchyModel* const nodes = hierarchy_model_ ? &*hierarchy_model_ : nullptr;
  const auto known = codec.trials.find(size_class(query));
  // Trials that a communicator does not live to see the end of cost, and give nothing.
  if (fault::fires("slow_link") || (early && known == codec.trials.end())) return cheapest(network_, nodes, codec.cost, query);
  const auto all = candidates(network_, nodes, codec.cost, query);
  Trials& trials = known != codec.trials.end() ? known->second : codec.trials.try_emplace(size_class(query), all).first->second;
  const bool before = trials.finished();
  const Choice choice = trials.choose(transport, all, query.count);
  if (!before && trials.finished()) publish();
  return choice;
}

Choice Chooser::forced(const Codec& codec, int ranks) {
  const AlgorithmEntry* const entry = find_algorithm(forced_);
  const bool runs = entry && entry->obstacle(codec, ranks).empty();
  if (runs && entry->plan) return {.algorithm = entry->algorithm, .why = "CRIMP_ALGORITHM"};
  if (runs && nodes()) return {.algorithm = first_algorithm(codec, hierarchy_->nodes), .nodes = true, .why = "CRIMP_ALGORITHM"};
  return {.algorithm = first_algorithm(codec, ranks), .why = runs ? "no nodes of several ranks" : "CRIMP_ALGORITHM cannot run the codec"};
}

Choice Chooser::choose(Transport& transport, const ChoiceQuery& query, const PlainAllreduce& plain, const std::function<CodecCost()>& time, bool same_call) {
  if (!same_call) counted_ = false;
  if (forced_ != "auto") return forced(*query.codec, transport.size());
  if (const Algorithm only = first_algorithm(*query.codec, transport.size()); !entry_of(only).cost) return {.algorithm = only, .why = "the codec's only algorithm"};

  if (!std::exchange(counted_, true)) {
    if (calls_ == 0) adopt(transport);
    early_ = calls_ < kEarly && calls_of_group_ + calls_ < kEarlyOfGroup;
    if (shared_) shared_->count_call(group_);
    ++calls_;
    if (network_.plain.empty() && !early_) adopt(transport);
  }
  const bool early = early_;
  if (adopted_ && !codecs_.contains(query.codec))
    if (const auto of = adopted_->codecs.find(query.codec->spec()); of != adopted_->codecs.end()) codecs_[query.codec] = {of->second.cost, 1, of->second.trials};
  const auto codec_at = codecs_.find(query.codec);
  if (early && (network_.plain.empty() || codec_at == codecs_.end())) return {.plain = true, .early = true};
  bool measured = false;
  if (network_.plain.empty()) {
    network_ = measure_network(transport, plain);
    if (nodes()) hierarchy_model_ = measure_hierarchy(transport, *hierarchy_);
    if (!hierarchy_model_) hierarchy_ = nullptr;
    ++measurements_;
    measured = true;
  }
  Measured& codec = codecs_[query.codec];
  if (due(codec.calls)) {
    codec.cost = measure_codec(transport, *query.codec, time);
    if (codec.calls >= kTriedAnew) codec.trials.clear();
    measured = true;
  }
  ++codec.calls;  // not where a rank lacked memory: then the next call measures
  if (measured) publish();
  const Choice choice = decide(transport, query, codec, early);
  if (!choice.nodes || nodes()) return choice;
  // Another communicator could have nodes, this one cannot.
  hierarchy_model_.reset();
  for (auto& [_, other] : codecs_) other.trials.clear();
  return decide(transport, query, codec, early);
}

void Chooser::took(const ChoiceQuery& query, const Choice& choice, double s) {
  if (!choice.trial) return;
  codecs_.at(query.codec).trials.at(size_class(query)).took(s, query.count);
}

}  // namespace crimp
