#include "collective/decisions.hpp"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "collective/call_choice.hpp"

namespace crimp {
namespace {

bool same(const CallDecision& decision, const CallPlan& plan, const ChosenParts& chosen) {
  if (decision.pass != chosen.pass || decision.unseen) return false;
  if (chosen.pass) return true;
  if (decision.parts.size() != plan.parts.size()) return false;
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    if (decision.parts[p] != plan.parts[p].as_it_runs(chosen.choices[p].carriage)) return false;
  return true;
}

CallDecision decision_of(const CallPlan& plan, const ChosenParts& chosen) {
  CallDecision decision{.pass = chosen.pass};
  if (chosen.pass) return decision;
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    decision.parts.push_back(plan.parts[p].as_it_runs(chosen.choices[p].carriage));
  return decision;
}

using nlohmann::json;

json json_of(int level) { return {{"level", level}}; }

json json_of(const CallDecision& decision) {
  if (decision.pass) return {{"passes", name_of(*decision.pass)}, {"unseen", decision.unseen}};
  json parts = json::array();
  for (const Carriage& part : decision.parts) {
    parts.push_back({{"algorithm", entry_of(part.algorithm).name},
                     {"nodes", part.nodes},
                     {"chunk", part.chunk_setting},
                     {"radix", part.radix}});
    if (part.halves) parts.back()["halves"] = true;
  }
  return {{"parts", std::move(parts)}};
}

template <class Decision>
json json_of(const DecisionRuns<Decision>& of) {
  json out{{"calls", of.calls}, {"truncated", of.ends > 0}, {"from", json::array()}};
  if (of.ends > 0) out["ends"] = of.ends;
  for (const auto& run : of.runs) {
    json one = json_of(run.decision);
    one["call"] = run.from;
    out["from"].push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string ranks_text(const std::vector<int>& world_ranks) {
  std::string text;
  for (std::size_t i = 0; i < world_ranks.size();) {
    std::size_t last = i;
    while (last + 1 < world_ranks.size() && world_ranks[last] >= 0 && world_ranks[last + 1] == world_ranks[last] + 1)
      ++last;
    text += (i ? "," : "") + std::to_string(world_ranks[i]);
    if (last > i) text += "-" + std::to_string(world_ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string DecisionRecord::json() const {
  nlohmann::json out{{"ranks", ranks},
                     {"number", number},
                     {"incomplete", incomplete},
                     {"kinds", nlohmann::json::array()},
                     {"levels", nlohmann::json::array()}};
  for (const auto& [_, kind] : kinds) {
    nlohmann::json one = json_of(kind.of);
    one["kind"] = kind.text;
    out["kinds"].push_back(std::move(one));
  }
  for (const auto& [bytes, of] : levels) {
    nlohmann::json one = json_of(of);
    one["from_bytes"] = bytes;
    out["levels"].push_back(std::move(one));
  }
  return out.dump();
}

template <class Decision, class Same, class Make>
void DecisionRecorder::note(DecisionRuns<Decision>& of, Same is_same, Make make) {
  if (of.ends > 0 || (!of.runs.empty() && is_same(of.runs.back().decision))) return;
  if (runs_ >= kMostRuns) {
    of.ends = of.calls - 1;
    if (of.ends == 0) record_.incomplete = true;  // not even its first call
    return;
  }
  try {
    of.runs.push_back({of.calls, make()});
    ++runs_;
  } catch (const std::bad_alloc&) {
    record_.incomplete = true;
    throw;
  }
}

void DecisionRecorder::level(std::uint64_t class_bytes, int level) {
  auto at = record_.levels.find(class_bytes);
  if (at == record_.levels.end()) {
    try {
      at = record_.levels.try_emplace(class_bytes).first;
    } catch (const std::bad_alloc&) {
      record_.incomplete = true;
      throw;
    }
  }
  ++at->second.calls;
  note(
      at->second, [&](int last) { return last == level; }, [&] { return level; });
}

void DecisionRecorder::begin(const CallPlan& plan) {
  call_ = nullptr;
  auto at = record_.kinds.find(plan.kind_digest);
  if (at == record_.kinds.end()) {
    if (record_.kinds.size() >= kMostRuns) {
      record_.incomplete = true;
      return;
    }
    try {
      at = record_.kinds.emplace(plan.kind_digest, DecisionRecord::Kind{plan.kind, {}}).first;
    } catch (const std::bad_alloc&) {
      record_.incomplete = true;
      throw;
    }
  }
  call_ = &at->second.of;
  ++call_->calls;
}

void DecisionRecorder::decided(const CallPlan& plan, const ChosenParts& chosen) {
  if (!call_) return;
  note(
      *call_, [&](const CallDecision& last) { return same(last, plan, chosen); },
      [&] { return decision_of(plan, chosen); });
}

void DecisionRecorder::unseen(std::uint64_t kind_digest) {
  const auto at = record_.kinds.find(kind_digest);
  if (at == record_.kinds.end()) {
    record_.incomplete = true;
    return;
  }
  ++at->second.of.calls;
  note(
      at->second.of, [](const CallDecision& last) { return last.unseen; },
      [] { return CallDecision{.pass = PassReason::slower, .unseen = true}; });
}

}  // namespace crimp
