// What each part of a planned call takes, and whether the call is for MPI instead.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "collective/decisions.hpp"

namespace crimp {

// Equal on all ranks. Routes are the plan's, and stay while it is kept or this is.
struct ChosenParts {
  std::vector<Choice> choices;
  std::vector<std::shared_ptr<const RoutePlan>> routes;
  std::optional<PassReason> pass;  // the whole call is for MPI; then there are no routes
  bool tries_plain = false;        // likewise, to learn its time, which the chooser is to be told
  bool learns = false;             // something is tried, or the communicator is too young for it
};

// Collective where something must be agreed or measured, which is a function of the calls so far. `time` gives this
// rank's cost of a part's codec on values of the call, on demand; `backend`: as Chooser::choose() has it. Nothing of
// the call has been sent when it returns or throws.
ChosenParts choose(Chooser&, const CallPlan&, Transport&, const PlainAllreduce&,
                   const std::function<CodecCost(const PlannedPart&)>& time,
                   const std::function<Backend*()>& backend = {});
// Of a call that will likely be declined (Chooser::headers_first()). Collective where nodes must be opened.
ChosenParts choose_headers_first(Chooser&, const CallPlan&, int ranks);

// As a job before did (CRIMP_REPLAY); a part takes the codec's first algorithm where that says nothing of it (null), or
// cannot be; then `*repeated` is false. Collective where nodes must be opened.
ChosenParts repeat(Chooser&, const CallPlan&, int ranks, const CallDecision*, bool* repeated);

}  // namespace crimp
