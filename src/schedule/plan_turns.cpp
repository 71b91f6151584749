#include "schedule/plan_turns.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "schedule/plan_json.hpp"

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
  for (const Turn& turn : turns) {
    out["turns"].push_back({{"steps", turn.steps}});
    put_plan(out["turns"].back(), turn.plan);
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

PlanTurns PlanTurns::parse(std::string_view text) {
  PlanTurns out;
  try {
    const auto from = nlohmann::json::parse(text);
    from.at("tensors").get_to(out.tensors);
    from.at("truncated").get_to(out.truncated);
    for (const auto& one : from.at("turns")) {
      Turn turn{plan_in(one, out.tensors.size()), natural(one.at("steps"))};
      if (turn.steps == 0) throw std::runtime_error("a turn of no steps");
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
