#include "collective/chooser.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "collective/forced.hpp"
#include "core/fault.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

// A payload's size changes as residuals fill, and a network while the job runs: measured anew at these calls with a
// codec.
bool due(std::uint64_t call) { return call == 16 || call == 256 || call % 4096 == 0; }
constexpr std::uint64_t kTriedAnew = 256;  // from this measurement on the fastest of trials is asked for again
}  // namespace

// Who lived long has gained by those that ended.
Chooser::~Chooser() {
  const auto unfinished = [](const auto& of) { return !of.second.finished(); };
  const auto any_unfinished = [&](const auto& of) {
    return std::any_of(of.second.trials.begin(), of.second.trials.end(), unfinished);
  };
  if (shared_ && 4 * tried_ >= calls_ && std::any_of(codecs_.begin(), codecs_.end(), any_unfinished))
    shared_->count_unfinished(group_);
}

SizeClass Chooser::size_class(const ChoiceQuery& query) const {
  return {.one_exchange_of_halves = ChoiceQuery::fits_one_exchange(query.halves_frame_bytes, ranks_),
          .one_exchange = ChoiceQuery::fits_one_exchange(query.frame_bytes, ranks_),
          .collective = query.collective,
          .alone = query.alone,
          .bits = static_cast<int>(std::bit_width(query.count))};
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
  double all[6] = {low,
                   high,
                   -low,
                   -high,
                   -static_cast<double>(shared_->calls(group_)),
                   -static_cast<double>(shared_->unfinished(group_))};
  agree_on_largest(transport, all);
  if (calls_ == 0) {
    calls_of_group_ = static_cast<std::uint64_t>(-all[4]);
    untried_ = kEarly << std::min(static_cast<std::uint64_t>(-all[5]), kMostDoublings);
  }
  if (all[0] != -all[2] || all[1] != -all[3] || !found) return;
  ++state_;
  adopted_ = std::move(found);
  network_ = adopted_->network;
  hierarchy_model_ = adopted_->hierarchy;
}

// What another communicator does not find it measures itself.
void Chooser::publish() const try {
  if (!shared_) return;
  Models models{network_, hierarchy_model_, {}};
  for (const auto& [codec, measured] : codecs_) {
    if (measured.calls == 0) continue;
    auto& of = models.codecs[codec->spec()];
    of.cost = measured.cost;
    of.halves = measured.halves;
    for (const auto& [size, trials] : measured.trials)
      if (trials.finished()) of.trials.emplace(size, trials);
  }
  shared_->publish(group_, std::move(models));
} catch (const std::bad_alloc&) {
}

Account& Chooser::account(const ChoiceQuery& query) {
  const std::pair of{query.codec, size_class(query)};
  Account& account = accounts_[of];
  account.learn(known(of.first, of.second));
  return account;
}

Account::Known Chooser::known(const Codec* codec, const SizeClass& of) const {
  Account::Known known{.model = &network_.plain};
  const auto measured = codecs_.find(codec);
  if (measured == codecs_.end()) return known;
  const auto trials = measured->second.trials.find(of);
  if (trials == measured->second.trials.end() || !trials->second.finished()) return known;
  known.trials = &trials->second;
  known.best_s = trials->second.best_s();
  known.plain_s = trials->second.plain_s();
  return known;
}

std::vector<Chooser::Times> Chooser::times() const {
  std::vector<Times> all;
  for (const auto& [of, account] : accounts_)
    all.push_back({of.first, of.second.from_elements(), account.total(known(of.first, of.second))});
  return all;
}

void Chooser::forget() {
  for (auto& [of, account] : accounts_) account.close(known(of.first, of.second));
  network_ = {};
  hierarchy_model_.reset();
  adopted_.reset();
  codecs_.clear();
  calls_ = tried_ = 0;
  ++state_;
}

Choice Chooser::choose(Transport& transport, const ChoiceQuery& query, const PlainAllreduce& plain,
                       const std::function<CodecCost(const Codec&)>& time, bool same_call,
                       const std::function<Backend*()>& backend) {
  if (!same_call) counted_ = false;
  ranks_ = transport.size();
  const SizeClass size = size_class(query);
  if (forced_ != "auto") return forced(forced_, query, ranks_, device_, [this] { return nodes(); });
  const Algorithm first = insist([&] { return first_algorithm(query, ranks_); });
  // What no model predicts is timed beside plain MPI, where that can carry the call.
  const bool predicted = entry_of(first).cost != nullptr;
  if (!predicted && (!query.alone || query.controlled))
    return {.carriage = {first}, .why = "the codec's only algorithm"};

  if (!std::exchange(counted_, true)) {
    if (calls_ == 0) adopt(transport);
    early_ = calls_ < kEarly && calls_of_group_ + calls_ < kEarlyOfGroup;
    if (shared_) insist([&] { shared_->count_call(group_); });
    ++calls_;
    if (network_.plain.empty() && !early_) adopt(transport);
  }
  const bool early = early_;
  if (adopted_ && !codecs_.contains(query.codec))
    insist([&] {
      if (const auto of = adopted_->codecs.find(query.codec->spec()); of != adopted_->codecs.end())
        codecs_.insert_or_assign(query.codec, Measured{of->second.cost, of->second.halves, 1, of->second.trials});
    });
  const auto codec_at = codecs_.find(query.codec);
  if (early && (network_.plain.empty() || codec_at == codecs_.end()))
    return {.carriage = {first}, .plain = true, .early = true};
  bool measured = false;
  if (network_.plain.empty()) {
    network_ = measure_network(transport, plain);
    if (nodes()) hierarchy_model_ = measure_hierarchy(transport, *hierarchy_, backend ? backend() : nullptr);
    if (!hierarchy_model_) hierarchy_ = nullptr;
    ++measurements_;
    measured = true;
  }
  Measured& codec = *insist([&] { return &codecs_[query.codec]; });
  const bool is_due = due(codec.calls);
  if (is_due && predicted) codec.cost = measure_codec(transport, *query.codec, [&] { return time(*query.codec); });
  // What CRIMP_CONTROL controls asks for none, and may have come first.
  if (query.halves && (is_due || !codec.halves)) {
    codec.halves = measure_codec(transport, *query.halves, [&] { return time(*query.halves); });
    measured = true;
  }
  if (is_due) {
    if (codec.calls >= kTriedAnew)
      for (auto at = codec.trials.begin(); at != codec.trials.end();)
        at = at->second.probe() ? std::next(at) : codec.trials.erase(at);
    measured = true;
  }
  ++codec.calls;  // not where a rank lacked memory: then the next call measures
  if (measured) ++state_, publish();

  for (;;) {
    const auto all = insist([&] {
      return candidates(network_, hierarchy_model_ ? &*hierarchy_model_ : nullptr, codec.cost, query,
                        codec.halves ? &*codec.halves : nullptr);
    });
    const auto known = codec.trials.find(size);
    // Trials that a communicator does not live to see the end of cost, and give nothing; nor does it open the node's
    // memory for a few calls, unless one pays for it.
    const bool young = early || calls_ <= kEarly, begins = !early && calls_ > untried_;
    const bool tries = !query.controlled && !fault::fires("slow_link") && (begins || known != codec.trials.end());
    Trials none;
    Trials& trials = !tries ? none
                     : known != codec.trials.end()
                         ? known->second
                         : *insist([&] { return &codec.trials.try_emplace(size, all, query.alone).first->second; });
    const bool before = trials.finished();
    const Choice choice = trials.choose(transport, all, query.count, young && open_nodes_ ? kOpeningNodes : 0);
    if (!before && trials.finished()) publish();
    tried_ += choice.trial;
    if (!choice.carriage.nodes || nodes()) return choice;
    // Another communicator could have nodes, this one cannot.
    hierarchy_model_.reset();
    ++state_;
    for (auto& [_, other] : codecs_) other.trials.clear();
  }
}

Choice Chooser::headers_first(const ChoiceQuery& query, int ranks) {
  const Choice named = forced_ == "auto" ? Choice{.carriage = {Algorithm::one_shot}}
                                         : forced(forced_, query, ranks, device_, [this] { return nodes(); });
  if (!entry_of(named.carriage.algorithm).one_exchange) return named;
  return {.carriage = {insist([&] { return first_algorithm(query, ranks); })}, .why = "calls like it were declined"};
}

Chooser::Settled Chooser::settled(const ChoiceQuery& query, const Choice& choice) const {
  if (forced_ != "auto" || !choice.plain || choice.early || choice.trial) return {};
  const auto codec = codecs_.find(query.codec);
  if (codec == codecs_.end()) return {};
  const auto trials = codec->second.trials.find(size_class(query));
  return trials != codec->second.trials.end() && trials->second.finished() ? Settled{query.codec, state_} : Settled{};
}

bool Chooser::still(const Settled& settled) const {
  return settled.codec && settled.state == state_ && !due(codecs_.find(settled.codec)->second.calls);
}

void Chooser::passed(const Settled& settled) {
  ++codecs_.find(settled.codec)->second.calls;
  ++calls_;
  // Of later ones nobody asks.
  if (shared_ && calls_of_group_ + calls_ <= kEarlyOfGroup) insist([&] { shared_->count_call(group_); });
}

void Chooser::took(const ChoiceQuery& query, const Choice& choice, double s) {
  if (!choice.trial) return;
  const auto of = codecs_.find(query.codec);
  if (of == codecs_.end()) return;
  // Another part of the call may have ended all trials since.
  if (const auto trials = of->second.trials.find(size_class(query)); trials != of->second.trials.end())
    trials->second.took(s, query.count);
}

}  // namespace crimp
