#include "schedule/plan_turns.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace crimp {
namespace {

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

void PlanTurns::add(const MergeTrials::Plan& plan, unsigned steps) noexcept {
  if (truncated) return;
  if (!turns.empty() && turns.back().plan == plan) {
    turns.back().steps += steps;
    return;
  }
  try {
    truncated = turns.size() == kMost;
    if (!truncated) turns.push_back({plan, steps});
  } catch (const std::bad_alloc&) {
    truncated = true;
  }
}

bool PlanTurns::is_of(std::vector<std::string> names) const { return sorted(tensors) == sorted(std::move(names)); }

std::string PlanTurns::json() const {
  nlohmann::json out{{"tensors", tensors}, {"turns", nlohmann::json::array()}, {"truncated", truncated}};
  for (const Turn& turn : turns)
    out["turns"].push_back({{"steps", turn.steps}, {"holds", turn.plan.holds}, {"cuts", turn.plan.cuts}});
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PlanTurns PlanTurns::parse(std::string_view text) {
  PlanTurns out;
  try {
    const auto from = nlohmann::json::parse(text);
    from.at("tensors").get_to(out.tensors);
    from.at("truncated").get_to(out.truncated);
    for (const auto& one : from.at("turns")) {
      Turn turn;
      one.at("holds").get_to(turn.plan.holds);
      if (!one.at("steps").is_number_unsigned()) throw std::runtime_error("a turn without a number of steps");
      one.at("steps").get_to(turn.steps);
      std::uint64_t last = 0;
      for (const auto& cut : one.at("cuts")) {
        const std::uint64_t at = cut.is_number_unsigned() ? cut.get<std::uint64_t>() : 0;
        if (at <= last || at >= out.tensors.size()) throw std::runtime_error("cuts that do not rise from 1 on");
        turn.plan.cuts.push_back(static_cast<std::uint32_t>(last = at));
      }
      if (turn.steps == 0 || (!turn.plan.cuts.empty() && !turn.plan.holds))
        throw std::runtime_error("a turn of no steps, or cuts without a plan");
      out.turns.push_back(std::move(turn));
    }
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("merge plans that lack 'tensors', 'turns' or 'truncated'");
  }
  const auto names = sorted(out.tensors);
  if (names.empty() || std::adjacent_find(names.begin(), names.end()) != names.end())
    throw std::runtime_error("merge plans of no tensors, or of one twice");
  return out;
}

}  // namespace crimp
