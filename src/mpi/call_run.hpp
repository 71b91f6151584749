// A bound call's way over the network, part after part, and to its end.
#pragma once
#include <optional>

#include "collective/call_choice.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/pass_reason.hpp"
#include "mpi/bound_call.hpp"
#include "mpi/context.hpp"

namespace crimp {

class Transport;

struct CallOutcome {
  std::optional<PassReason> pass;  // the call is for MPI, on all ranks alike, and nothing has changed
  DelayNotes delays;               // of all ranks
  double wait_s = 0;               // of this rank for others, what was hidden behind its work apart
  std::optional<Error> failure;    // of the first part that failed, or of the end; all parts were carried to theirs
};

struct CallTimes {
  Clock::time_point begun, chosen;  // the call; its choice
  double wait_s = 0;                // before it began, for ranks that came later (CRIMP_SKEW)
  std::uint32_t communicator = 0;   // of the trace
};

// Collective. Says what it took to the report, and to the chooser.
CallOutcome run(const Context&, Transport&, Chooser&, const CallPlan&, const ChosenParts&, BoundCall&,
                const CallTimes&);

// Returns when all ranks have come to it: the end of a trial, whether it succeeded or not. Of what a trial takes the
// least of all ranks' times counts, from when the last one came (Trials); where ranks share cores they do not end
// together, and that one may be the first to end.
void meet(Transport&);

// What the parts leave to do once all have run: the caller's type, what is summed exactly, the caller's buffer.
// Collective, whatever has failed before.
void finish(const Context&, const AllreduceRequest&, const CallPlan&, const BoundCall&, CallValues&, int ranks,
            std::optional<Error>& failure);

}  // namespace crimp
