#include "report/step_picture.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/error.hpp"
#include "schedule/plan_json.hpp"
#include "schedule/step_trace.hpp"

namespace crimp::tools {
namespace {

constexpr std::size_t kMostUnits = 3000;  // of which an optimum is looked for: about a second

std::string cuts_text(const Cuts& cuts) { return cuts.empty() ? "all" : fmt::format("cuts={}", fmt::join(cuts, ",")); }

// The first tensors of groups, as CRIMP_MERGE=cuts= has them, as first units.
Cuts of_units(const StepTrace& trace, const std::vector<std::uint64_t>& tensors) {
  Cuts out;
  std::uint64_t tensor = 0;
  for (std::uint32_t u = 0; u < trace.units.size(); tensor += trace.units[u++].tensors)
    if (std::find(tensors.begin(), tensors.end(), tensor) != tensors.end() && u) out.push_back(u);
  return out;
}

Grouping each_alone(const StepTrace& trace) {
  Grouping each;
  for (std::uint32_t u = 1; u < trace.units.size(); ++u) each.cuts.push_back(u);
  return each;
}

std::vector<StepPicture::Call> calls_of(const StepTrace& trace, const Grouping& groups) {
  std::vector<StepPicture::Call> calls;
  double last_end_s = 0, in_calls_s = 0;
  std::size_t group = 0, unit = 0;
  while (unit < trace.units.size()) {
    const std::size_t end = group < groups.cuts.size() ? groups.cuts[group] : trace.units.size();
    StepPicture::Call call{0, 0, 0, 0, 0};
    for (; unit < end; ++unit) {
      call.tensors += trace.units[unit].tensors;
      call.bytes += trace.units[unit].bytes;
      call.ready_s = std::max(call.ready_s, trace.units[unit].ready_s);
    }
    const std::size_t codec = groups.codec(group++);
    const double takes_s = trace.calls[codec < trace.calls.size() ? codec : 0].at(static_cast<double>(call.bytes));
    if (trace.stalls) call.ready_s += in_calls_s;  // the program's own time, and the calls before
    call.begin_s = std::max(call.ready_s, last_end_s);
    last_end_s = call.end_s = call.begin_s + takes_s;
    in_calls_s += takes_s;
    calls.push_back(call);
  }
  return calls;
}

StepPicture picture(const StepTrace& trace, std::size_t rank, const nlohmann::json* search,
                    const std::string& setting) {
  StepPicture out;
  out.rank = rank;
  out.horovod = search;
  out.settled = search && search->value("settled", false);
  out.tensors = trace.tensors.size();
  for (const auto& unit : trace.units) out.bytes += unit.bytes;
  out.steps = trace.steps;
  out.step_s = trace.step_s;
  Grouping ran = each_alone(trace);
  out.plan = search ? "no plan held: each alone" : "the calls that the program makes";
  if (search && search->contains("chosen") && search->at("chosen").value("holds", false)) {
    const MergeTrials::Plan chosen = plan_in(search->at("chosen"), trace.tensors.size());
    ran.cuts = of_units(trace, {chosen.groups.cuts.begin(), chosen.groups.cuts.end()});
    if (ran.cuts.size() != chosen.groups.cuts.size()) throw std::runtime_error("cuts where no group may begin");
    ran.codecs = chosen.groups.codecs;
    out.plan = setting + ": " + cuts_text(trace.first_tensors(ran.cuts));
  }
  out.calls = calls_of(trace, ran);
  const auto add = [&](std::string name, const Grouping& groups) {
    const auto calls = calls_of(trace, groups);
    out.plans.push_back({std::move(name), calls.size(), calls.back().end_s,
                         search ? "CRIMP_MERGE=" + cuts_text(trace.first_tensors(groups.cuts)) : ""});
  };
  add("each alone", each_alone(trace));
  // Where no size took longer than another, nobody knows what a larger one takes.
  const auto flat = [](const Curve& c) { return c.points().empty() || c.points().front().s >= c.points().back().s; };
  if (std::any_of(trace.calls.begin(), trace.calls.end(), flat)) return out;
  add("all in one", {});
  if (trace.units.size() <= kMostUnits) add("the optimum", best_grouping(trace.timeline()));
  return out;
}

}  // namespace

std::vector<StepPicture> step_pictures(const Figures& figures) {
  std::vector<StepPicture> out;
  const auto setting = figures.settings.find("CRIMP_MERGE");
  const std::string merge = "CRIMP_MERGE=" + (setting == figures.settings.end() ? "off" : setting->second);
  try {
    const auto& ranks = figures.report["per_rank"];
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto& of = object_in(object_in(ranks[rank], "horovod"), "merge");
      const auto& search = object_in(of, "search");
      if (search.contains("trace"))
        out.push_back(picture(StepTrace::parse(search["trace"].dump()), rank, &search, merge));
    }
    // All ranks have the same calls, so one of them is enough.
    for (const auto& trace : array_in(ranks[0], "steps"))
      out.push_back(picture(StepTrace::parse(trace.dump()), 0, nullptr, merge));
  } catch (const std::exception& e) {
    throw Error(ErrorCode::argument_invalid, "'" + figures.file + "' is damaged: it has " + e.what());
  }
  return out;
}

}  // namespace crimp::tools
