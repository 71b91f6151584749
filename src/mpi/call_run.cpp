#include "mpi/call_run.hpp"

#include "collective/collective.hpp"
#include "collective/wire.hpp"
#include "core/report.hpp"

namespace crimp {
namespace {

// Whatever of a rank's own fails at a call's end, the other ranks wait for what is left of it. What MPI says ends the
// call at once.
template <class Work>
void attempt(std::optional<Error>& failure, Work&& work) {
  try {
    work();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::transport_failed) throw;
    if (!failure) failure = e;
  }
}

PassReason pass_for(std::uint8_t flags) {
  if (flags & kFlagForeign) return PassReason::foreign;
  if (flags & kFlagNoMemory) return PassReason::memory;
  return flags & kFlagExact ? PassReason::range : PassReason::outlier;
}

}  // namespace

CallOutcome run(const Context& context, Transport& transport, Chooser& chooser, const CallPlan& plan,
                const ChosenParts& chosen, const BoundCall& bound, const CallTimes& times) {
  CallOutcome outcome;
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const Choice& choice = chosen.choices[p];
    const RoutePlan& route = *chosen.routes[p];
    const auto now = Clock::now();
    const CollectiveResult result =
        allreduce_compressed(transport, route, bound.parts[p], context.workers, context.trace);
    // All parts of a call carry the same flags, so only the first can end it, and then nothing has changed.
    if (result.flags) {
      outcome.pass = pass_for(result.flags);
      return outcome;
    }
    if (result.error) {
      if (!outcome.failure) outcome.failure = result.error;
      continue;
    }
    for (Residual* r : bound.residuals[p])
      if (r && r->turns < ~std::uint32_t{0}) ++r->turns;
    const auto end = Clock::now();
    const PlannedPart& part = plan.parts[p];
    chooser.took(part.query, choice, seconds(end - (p == 0 ? times.chosen : now)));
    context.report.compressed({part.plan.codec->spec(), name_of(plan.layout->source), route.name, choice.why,
                               choice.predicted_s, choice.plain_s, part.query.plain_bytes, result.sent_bytes,
                               result.received_bytes, result.encode_s, result.wire_s, result.decode_s,
                               seconds(end - (p == 0 ? times.begun : now))});
  }
  return outcome;
}

void finish(const Context& context, const AllreduceRequest& request, const CallPlan& plan, const BoundCall& bound,
            CallValues& values, int ranks, std::optional<Error>& failure) {
  Backend& backend = values.backend();
  if (bound.widened && !failure)
    attempt(failure, [&] {
      for (const Group& group : plan.scanned)
        backend.narrow(request.dtype, bound.widened + group.offset,
                       static_cast<char*>(values.receive()) + group.offset * size_of(request.dtype), group.count);
    });
  attempt(failure, [&] { backend.synchronize(); });
  attempt(failure, [&] { sum_exactly(request, bound.exact, values, bound.packed, ranks); });
  if (values.on_device()) context.report.on_device(values.through_host());
  if (!failure) values.write_back(*plan.layout);
}

}  // namespace crimp
