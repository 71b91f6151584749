// What a session leaves to MPI, and what it sums exactly itself, because nothing of it is to be encoded.
#include <string>

#include "core/float_environment.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "core/trace.hpp"
#include "mpi/call_run.hpp"
#include "mpi/momentum_sum.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi/session.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {
namespace {

TimedCalls::Left left_to_mpi(const AllreduceRequest& request, const std::shared_ptr<const CallPlan>& plan,
                             Clock::time_point begun) {
  return {.begun = begun,
          .count = request.count,
          .plan = plan,
          .layout = plan->layout,
          .bytes = request.count * size_of(request.dtype)};
}

}  // namespace

void Session::leave(const AllreduceRequest& request, const std::shared_ptr<const CallPlan>& plan,
                    Clock::time_point begun) {
  if (!context_.times || !request.left) return;
  times_.leave(left_to_mpi(request, plan, begun));
  *request.left = this;
}

bool Session::passes(const AllreduceRequest& request) {
  const KnownPasses::Pass* const pass = passes_.find(request);
  if (!pass) return false;
  const bool settled = recorded_.repeats() ? recorded_.passes_unseen(pass->kind)
                                           : pass->seen >= KnownPasses::kInARow && chooser_.still(pass->settled);
  if (!settled || !(request.layout || !follows_calls(request) || calls_.skip(pass->count, pass->dtype))) return false;
  if (!recorded_.repeats()) chooser_.passed(pass->settled);
  recorded_.passed_unseen(pass->kind);
  if (request.left && pass->account) {
    times_.leave({.begun = Clock::now(),
                  .count = request.count,
                  .account = pass->account,
                  .elements = pass->elements,
                  .plain_bytes = pass->plain_bytes,
                  .layout = request.layout,
                  .bytes = request.count * size_of(request.dtype)});
    *request.left = this;
  }
  return true;
}

void Session::note_pass(const AllreduceRequest& request, const CallPlan& plan, const ChosenParts& chosen) {
  if (chosen.pass != PassReason::slower || plan.parts.size() != 1) return;
  if (!plan.excluded.empty() && plan.layout->source != Layout::Source::periodic) return;
  if (!request.layout && follows_calls(request) && !plan.layout->known()) return;
  const ChoiceQuery& query = plan.parts[0].query;
  const Chooser::Settled settled =
      recorded_.repeats() ? Chooser::Settled{} : chooser_.settled(query, chosen.choices[0]);
  if (!settled.codec && !recorded_.repeats()) return;
  KnownPasses::Pass& known = passes_.add(request, plan, settled);
  if (context_.times) context_.report.note([&] { known.account = &chooser_.account(query); });
}

void Session::try_plain(const AllreduceRequest& request, const ChoiceQuery& query, const Choice& choice) {
  MpiTransport transport(comm_, rank_, size_);
  insist([&] {
    transport.begin_call(  // with no more than two references each, or std::function would need memory
        [&] { return "in " + call_text(request) + " on " + name_of(comm_) + ", which MPI carries to learn its time,"; },
        [this] { return absence_text(context_.settings.min_count); });
  });
  const auto begin = Clock::now();
  int rc;
  try {
    rc = request.sum_by_mpi();
  } catch (...) {  // out of the program's error handler: the other ranks wait
    meet(transport);
    throw;
  }
  meet(transport);
  if (rc != MPI_SUCCESS)
    throw Error(ErrorCode::transport_failed, function_text(request) + " failed with code " + std::to_string(rc), rc);
  const auto end = Clock::now();
  if (context_.trace) context_.trace->passed(text_of(PassReason::slower), request.count, begin, end);
  chooser_.took(query, choice, seconds(end - begin));
}

bool Session::pass(const AllreduceRequest& request, const CallEnd& end, CallValues& values, PassReason* why) {
  const CallPlan& plan = *end.plan;
  *why = *end.pass;
  if (plan.pass) {
    // None is encoded, and momentum is not MPI's; of shares only calls that name tensors can sum themselves.
    const bool whole = *why == PassReason::rules || (*why == PassReason::shares && request.sum_exactly);
    if (!whole || !plan.has_momentum() || !sum_with_momentum(request, plan, values, memory_, size_, why)) return false;
    momentum_unsaved_ = true;
    context_.report.passed(*why);
    return true;
  }
  if (end.chosen.pass) note_pass(request, plan, end.chosen);
  if (!end.chosen.tries_plain) {
    leave(request, end.plan, end.begun);
    return false;
  }
  try_plain(request, plan.parts[0].query, end.chosen.choices[0]);
  if (context_.times) {
    times_.leave(left_to_mpi(request, end.plan, end.begun));
    times_.left_ended();
  }
  context_.report.passed(*why);
  return true;
}

bool Session::allreduce_small(const AllreduceRequest& request) {
  fill_reserve();
  const FloatEnvironment environment;
  const auto plan = insist([&] { return planner_.plan(request.dtype, request.count, request.layout); });
  if (!plan->has_momentum()) return false;
  CallValues values(request, scratch_);
  PassReason why = PassReason::small;
  if (!sum_with_momentum(request, *plan, values, memory_, size_, &why)) return false;
  momentum_unsaved_ = true;
  context_.report.passed(why);
  return true;
}

}  // namespace crimp
