#include "schedule/plan_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "schedule/rules.hpp"

namespace crimp {

// json's own conversions turn -1 and 1.5 into unsigned numbers.
std::uint64_t natural(const nlohmann::json& number) {
  if (!number.is_number_unsigned()) throw std::runtime_error("a number is not a natural one");
  return number.get<std::uint64_t>();
}

void put_plan(nlohmann::json& to, const MergeTrials::Plan& plan) {
  to["holds"] = plan.holds;
  to["cuts"] = plan.groups.cuts;
  if (!plan.groups.codecs.empty()) to["codecs"] = plan.groups.codecs;
}

MergeTrials::Plan plan_in(const nlohmann::json& from, std::size_t tensors) {
  MergeTrials::Plan plan;
  from.at("holds").get_to(plan.holds);
  std::uint64_t last = 0;
  for (const auto& cut : from.at("cuts")) {
    const std::uint64_t at = natural(cut);
    if (at <= last) throw std::runtime_error("its cuts do not rise");
    if (at >= tensors) throw std::runtime_error("it has cuts beyond its tensors");
    plan.groups.cuts.push_back(static_cast<std::uint32_t>(last = at));
  }
  auto& codecs = plan.groups.codecs;
  if (from.contains("codecs"))
    for (const auto& codec : from["codecs"]) {
      if (natural(codec) >= Rules::kMostCodecs) throw std::runtime_error("it has codecs beyond a rule's");
      codecs.push_back(codec.get<std::uint8_t>());
    }
  if (!codecs.empty() && codecs.size() != plan.groups.cuts.size() + 1)
    throw std::runtime_error("it has not as many codecs as groups");
  if (std::all_of(codecs.begin(), codecs.end(), [](auto codec) { return codec == 0; })) codecs.clear();
  if (!plan.holds && plan != MergeTrials::Plan{}) throw std::runtime_error("it has cuts, and holds nothing");
  return plan;
}

}  // namespace crimp
