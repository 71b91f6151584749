#include "collective/call_choice.hpp"

#include "core/error.hpp"
#include "core/reserve.hpp"

namespace crimp {

ChosenParts choose(Chooser& chooser, const CallPlan& plan, Transport& transport, const PlainAllreduce& plain,
                   const std::function<CodecCost(const PlannedPart&)>& time) {
  ChosenParts chosen;
  // Room for all before the first says anything to other ranks.
  insist([&] { chosen.choices.reserve(plan.parts.size()), chosen.routes.reserve(plan.parts.size()); });
  bool early = false, trial = false;
  double predicted_s = 0, plain_s = 0;
  for (const PlannedPart& part : plan.parts) {
    try {
      chosen.choices.push_back(chooser.choose(
          transport, part.query, plain, [&] { return time(part); }, &part != &plan.parts.front()));
    } catch (const Error& e) {  // of memory for measuring all ranks say so alike
      if (e.code() != ErrorCode::out_of_memory) throw;
      chosen.pass = PassReason::memory;
      return chosen;
    }
    const Choice& choice = chosen.choices.back();
    early = early || choice.early;
    trial = trial || choice.trial;
    predicted_s += choice.predicted_s;
    plain_s += choice.plain_s;
  }
  const bool compresses = !early && (plan.controlled || trial || predicted_s == 0 || predicted_s < plain_s);
  if (!compresses && !plan.means_more) {
    chosen.pass = early ? PassReason::early : PassReason::slower;
    return chosen;
  }
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    chosen.routes.push_back(
        insist([&] { return plan.parts[p].route(chosen.choices[p], chooser.hierarchy(), transport.size()); }));
  return chosen;
}

}  // namespace crimp
