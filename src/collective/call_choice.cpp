#include "collective/call_choice.hpp"

#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "core/error.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

// Room for all is there before any rank says anything to the others.
void reserve(ChosenParts& chosen, const CallPlan& plan) {
  insist([&] { chosen.choices.reserve(plan.parts.size()), chosen.routes.reserve(plan.parts.size()); });
}

void find_routes(ChosenParts& chosen, const Chooser& chooser, const CallPlan& plan, int ranks) {
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    chosen.routes.push_back(
        insist([&] { return plan.route(p, chosen.choices[p].carriage, chooser.hierarchy(), ranks); }));
}

// Null: it can be repeated.
const char* obstacle(Chooser& chooser, const ChoiceQuery& query, int ranks, const Carriage* decision) {
  if (!decision) return "not in the record of CRIMP_REPLAY";
  if (decision->halves && !query.halves)
    return "in 16 bits in the record of CRIMP_REPLAY, which the codec allows no more";
  if (decision->algorithm == Algorithm::node_sum)
    return query.exact && chooser.nodes() && chooser.nodes()->nodes == 1
               ? nullptr
               : "exact on one node in the record of CRIMP_REPLAY, whose memory not all ranks share";
  const ChoiceQuery as = decision->halves ? query.in_halves() : query;
  if ((decision->algorithm == Algorithm::reduce_scatter) != (query.collective != Collective::allreduce))
    return "what the record of CRIMP_REPLAY has is of another collective";
  const Hierarchy* const nodes = decision->nodes ? chooser.nodes() : nullptr;
  if (decision->nodes && !nodes) return "no nodes, which the record of CRIMP_REPLAY has";
  const AlgorithmEntry& entry = entry_of(decision->algorithm);
  const bool runs = insist([&] { return entry.why_unsupported(*as.codec, nodes ? nodes->nodes : ranks).empty(); });
  if (!entry.fits(as, ranks)) return "longer than what the record of CRIMP_REPLAY has can carry";
  return runs && !(nodes && (entry.mpi_adds || entry.one_exchange))
             ? nullptr
             : "what the record of CRIMP_REPLAY has cannot run the codec";
}

}  // namespace

ChosenParts repeat(Chooser& chooser, const CallPlan& plan, int ranks, const CallDecision* decision, bool* repeated) {
  ChosenParts chosen;
  *repeated = decision && (decision->pass ? !plan.means_more : decision->parts.size() == plan.parts.size());
  if (*repeated && decision->pass) {
    chosen.pass = decision->pass;
    chosen.learns = decision->pass == PassReason::early;
    return chosen;
  }
  const bool known = *repeated;
  reserve(chosen, plan);
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    const Carriage* const part = known ? &decision->parts[p] : nullptr;
    if (const char* const why = obstacle(chooser, plan.parts[p].query, ranks, part)) {
      *repeated = false;
      chosen.choices.push_back(
          {.carriage = {insist([&] { return first_algorithm(plan.parts[p].query, ranks); })}, .why = why});
    } else {
      chosen.choices.push_back({.carriage = *part, .why = "CRIMP_REPLAY"});
    }
  }
  find_routes(chosen, chooser, plan, ranks);
  return chosen;
}

ChosenParts choose_headers_first(Chooser& chooser, const CallPlan& plan, int ranks) {
  ChosenParts chosen;
  reserve(chosen, plan);
  for (const PlannedPart& part : plan.parts) chosen.choices.push_back(chooser.headers_first(part.query, ranks));
  find_routes(chosen, chooser, plan, ranks);
  return chosen;
}

ChosenParts choose(Chooser& chooser, const CallPlan& plan, Transport& transport, const PlainAllreduce& plain,
                   const std::function<CodecCost(const PlannedPart&)>& time, const std::function<Backend*()>& backend) {
  ChosenParts chosen;
  reserve(chosen, plan);
  bool early = false, trial = false;
  double predicted_s = 0, plain_s = 0;
  for (const PlannedPart& part : plan.parts) {
    const auto cost = [&](const Codec& codec) {
      return time(&codec == part.query.codec ? part : plan.halves->parts[0]);
    };
    try {
      chosen.choices.push_back(chooser.choose(
          transport, part.query, plain,
          [&cost](const Codec& codec) { return cost(codec); },  // no more, or it is an allocation
          &part != &plan.parts.front(), backend));
    } catch (const Error& e) {  // of memory for measuring all ranks say so alike
      if (e.code() != ErrorCode::out_of_memory) throw;
      chosen.pass = PassReason::memory;
      return chosen;
    }
    const Choice& choice = chosen.choices.back();
    early = early || choice.early;
    trial = trial || choice.trial;
    chosen.learns = early || trial;
    predicted_s += choice.predicted_s;
    plain_s += choice.plain_s;
  }
  chosen.tries_plain = std::any_of(chosen.choices.begin(), chosen.choices.end(),
                                   [](const Choice& choice) { return choice.trial && choice.plain; });
  if (chosen.tries_plain) {  // the call has no other part
    chosen.pass = PassReason::slower;
    return chosen;
  }
  const bool compresses = !early && (plan.controlled || trial || predicted_s == 0 || predicted_s < plain_s);
  if (!compresses && !plan.means_more) {
    chosen.pass = early ? PassReason::early : PassReason::slower;
    return chosen;
  }
  find_routes(chosen, chooser, plan, transport.size());
  return chosen;
}

}  // namespace crimp
