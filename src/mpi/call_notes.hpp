// What is said of a call that was compressed: to the report, its history, the trace, and what calls of its size take.
#pragma once
#include <cstddef>
#include <cstdint>

#include "collective/call_choice.hpp"
#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "collective/collective.hpp"
#include "core/clock.hpp"
#include "core/records.hpp"
#include "core/trace.hpp"
#include "mpi/context.hpp"

namespace crimp {

// What a call's part, or a call of one part, came to. rank: of the communicator.
CallRecord record_of(const PartPlan&, const char* algorithm, const CollectiveResult&, int rank, Clock::time_point begun,
                     Clock::time_point ended);
// Tells report and trace, where there is one, of a call or its part; the label is that of the layout's tensors. Local.
// Where there is no memory for it, it is not said.
void note_call(const Context&, Trace::Call, const Layout&, Dtype, Clock::time_point begun,
               Clock::time_point ended) noexcept;

// The same of the history: what of the record falls between these.
void note_time(const Context&, const CallRecord&, Clock::time_point begun, Clock::time_point ended) noexcept;

// A blocking call's part that has run.
struct PartEnd {
  const CallPlan& call;
  const ChosenParts& chosen;
  std::size_t part;  // which of the call's
  const CollectiveResult& result;
  std::uint32_t sequence, communicator;  // of the call's header; of the trace
  Clock::time_point begun, ended;        // the first one's beginning is the call's
  double wait_s;                         // before the call began, for ranks that came later (CRIMP_SKEW)
};

// note_call(), note_time(), what the chooser is told, and tensors, of which the report of rank 0 alone has a history.
void note_part(const Context&, Chooser&, const PartEnd&, int rank) noexcept;

}  // namespace crimp
