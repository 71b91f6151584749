// What is said of a call's part that has run: to the report, its history, the trace, and what calls of its size take.
#pragma once
#include <cstddef>
#include <cstdint>

#include "collective/call_choice.hpp"
#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "collective/collective.hpp"
#include "core/clock.hpp"
#include "mpi/context.hpp"

namespace crimp {

struct PartEnd {
  const CallPlan& call;
  const ChosenParts& chosen;
  std::size_t part;  // which of the call's
  const CollectiveResult& result;
  std::uint32_t sequence, communicator;  // of the call's header; of the trace
  Clock::time_point begun, ended;        // the first one's beginning is the call's
  double wait_s;                         // before the call began, for ranks that came later (CRIMP_SKEW)
};

// rank: of the communicator; the report of rank 0 alone has a history of tensors. Local. Where there is no memory for
// it, it is not said.
void note_part(const Context&, Chooser&, const PartEnd&, int rank) noexcept;

}  // namespace crimp
