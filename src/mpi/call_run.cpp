#include "mpi/call_run.hpp"

#include <algorithm>

#include "collective/collective.hpp"
#include "collective/wire.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "mpi/call_notes.hpp"

namespace crimp {
namespace {

// Of all parts, before the first byte is sent: behind it there is no way back. Where this rank has no memory for them,
// of the first alone, which says so.
std::vector<std::unique_ptr<Exchange>> exchanges(const Context& context, Transport& transport,
                                                 const ChosenParts& chosen, BoundCall& bound) {
  std::vector<std::unique_ptr<Exchange>> all;
  const auto add = [&](std::size_t p) {
    all.push_back(chosen.routes[p]->exchange(transport, bound.parts[p], context.workers, context.trace));
  };
  try {
    all.reserve(bound.parts.size());
    for (std::size_t p = 0; p < bound.parts.size() && !bound.failed; ++p) add(p);
  } catch (const std::exception&) {
    all.clear();
    bound.failed = true;
    for (CallBuffers& part : bound.parts) decline(part);
  }
  if (bound.failed) insist([&] { add(0); });
  return all;
}

PassReason pass_for(std::uint8_t flags) {
  if (flags & kFlagNoGradient) return PassReason::no_gradient;
  if (flags & kFlagForeign) return PassReason::foreign;
  if (flags & kFlagNoMemory) return PassReason::memory;
  if (flags & kFlagExact) return PassReason::range;
  return flags & kFlagOutlier ? PassReason::outlier : PassReason::first;
}

// Of another rank's, in a later part.
Error none_to_send(const Codec& codec) {
  return {ErrorCode::payload_corrupt,
          "a rank had no memory, or its device failed, and has nothing to send of the tensors with the codec " +
              codec.spec() + ", when others of the call have been summed; the result of this call is undefined"};
}

}  // namespace

void meet(Transport& transport) {
  const std::uint8_t mine[kPayloadAlign] = {};
  std::uint8_t sums[kPayloadAlign];
  transport.wait(transport.start_sum(mine, sums, sizeof mine, Integer::u8));
}

CallOutcome run(const Context& context, Transport& transport, Chooser& chooser, const CallPlan& plan,
                const ChosenParts& chosen, BoundCall& bound, const CallTimes& times) {
  CallOutcome outcome;
  const auto parts = exchanges(context, transport, chosen, bound);
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const Choice& choice = chosen.choices[p];
    const RoutePlan& route = *chosen.routes[p];
    const auto now = Clock::now();
    parts[p]->start();
    const CollectiveResult result = parts[p]->finish();
    // All parts of a call carry the same flags of its values, so that these end the first, and then nothing has
    // changed. What fails of a later one must not: MPI would sum again what the parts before have summed.
    if (result.flags && p == 0) {
      outcome.pass = pass_for(result.flags);
      return outcome;
    }
    if (result.flags) {
      if (!outcome.failure)
        insist([&] { outcome.failure = result.error ? *result.error : none_to_send(*route.part.codec); });
      continue;
    }
    if (choice.trial) meet(transport);
    bound.added_on_host = bound.added_on_host || result.through_host;
    if (p == 0) outcome.delays = result.delays;
    outcome.wait_s += result.wire_s - result.node_wait_s;
    if (result.error) {
      if (!outcome.failure) outcome.failure = result.error;
      continue;
    }
    for (Residual* r : bound.residuals[p])
      if (r && r->turns < ~std::uint32_t{0}) ++r->turns;
    const auto end = Clock::now();
    chooser.took(plan.parts[p].query, choice, seconds(end - (p == 0 ? times.chosen : now)));
    note_part(context, chooser,
              {.call = plan,
               .chosen = chosen,
               .part = p,
               .result = result,
               .sequence = bound.parts[p].sequence,
               .communicator = times.communicator,
               .begun = p == 0 ? times.begun : now,
               .ended = end,
               .wait_s = p == 0 ? times.wait_s : 0},
              transport.rank());
  }
  return outcome;
}

void finish(const Context& context, const AllreduceRequest& request, const CallPlan& plan, const BoundCall& bound,
            CallValues& values, int ranks, std::optional<Error>& failure) {
  Backend& backend = values.backend();
  const Shares::Run own = request.own();
  // Whatever of a rank's own fails at a call's end, the other ranks wait for what is left of it. No work for MPI: what
  // it says, or an error handler throws, ends the call at once.
  const auto attempt = [&failure](auto&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (!failure) failure = e;
    } catch (const std::exception& e) {
      if (!failure) insist([&] { failure.emplace(ErrorCode::out_of_memory, e.what()); });
    }
  };
  const std::optional<Error> not_packed = pack(request, bound.exact, values, bound.packed, ranks);
  if (bound.widened && !failure)
    attempt([&] {
      for (const Group& group : plan.scanned) {
        const std::uint64_t first = std::max(own.begin, group.offset);
        const std::uint64_t last = std::min(own.end, group.offset + group.count);
        if (first < last)
          backend.narrow(request.dtype, bound.widened + first,
                         static_cast<char*>(values.receive()) + (first - own.begin) * size_of(request.dtype),
                         last - first);
      }
    });
  if (bound.aside && !failure)
    attempt([&] { backend.copy(static_cast<float*>(values.receive()), bound.aside, own.count()); });
  attempt([&] { backend.synchronize(); });
  try {
    sum_exactly(request, bound.exact, values, bound.packed, not_packed);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::transport_failed) throw;
    if (!failure) failure = e;
  }
  if (values.on_device())
    context.report.note([&] {
      const bool nodes = bound.added_on_host && values.through_host().empty();
      context.report.on_device(nodes ? "the sums within nodes, whose ranks share no device memory"
                                     : values.through_host());
    });
  if (!failure) values.write_back(*plan.layout);
}

}  // namespace crimp
