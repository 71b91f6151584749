#include "traced_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "input_file.hpp"
#include "schedule/merge_plan.hpp"
#include "stopwatch.hpp"
#include "trace_steps.hpp"

namespace crimp::tools {
namespace {

constexpr std::uint64_t kMega = 1'000'000;
// Of more the optimum is not looked for: its search takes time with the square of their number, some seconds of these.
constexpr std::size_t kMostSearched = 16384;

struct Row {
  std::string name;
  Grouping units;
  double end_s;
};

// The last one is the optimum, if it was looked for.
std::vector<Row> rows_of(const StepTrace& trace, bool search, double* search_s) {
  const Timeline step = trace.timeline();
  std::vector<Row> rows;
  const auto add = [&](std::string name, Grouping groups) {
    const double end_s = step.end_s(groups);
    rows.push_back({std::move(name), std::move(groups), end_s});
  };
  const auto as_plan = [&](const std::string& text) {
    const auto groups = MergePlan(text).groups(step.bytes);
    Grouping out;
    for (std::uint32_t u = 1; u < groups.size(); ++u)
      if (groups[u] != groups[u - 1]) out.cuts.push_back(u);
    return out;
  };
  Grouping each;
  for (std::uint32_t u = 1; u < trace.units.size(); ++u) each.cuts.push_back(u);
  add("each alone", each);
  for (const std::uint64_t mega : {2, 4, 8, 16, 32, 64})
    add(fmt::format("buckets of {} MB", mega), as_plan(fmt::format("bytes={}", mega * kMega)));
  add("y=2", as_plan("y=2"));
  add("all in one", {});
  if (!search) return rows;
  Grouping best;
  *search_s = timed([&] { best = best_grouping(step); });
  add("the optimum", best);
  return rows;
}

// What ran under the plan, where it did.
std::optional<double> measured_s(const Traced& of, const Cuts& cuts, const std::vector<std::uint8_t>& codecs) {
  for (const auto& tried : of.tried)
    if (tried.at("holds").get<bool>() && tried.at("cuts").get<Cuts>() == cuts &&
        tried.value("codecs", std::vector<std::uint8_t>{}) == codecs && tried.at("step_ms").get<double>() > 0)
      return tried["step_ms"].get<double>() / 1e3;
  return {};
}

std::string cuts_text(const Cuts& cuts) { return cuts.empty() ? "all" : fmt::format("cuts={}", fmt::join(cuts, ",")); }

}  // namespace

std::vector<Traced> traces_in(const std::string& file) {
  const auto bad = [&](const std::string& why) { return Error(ErrorCode::argument_invalid, "'" + file + "' " + why); };
  if (is_trace(file)) {
    TraceSteps steps = steps_in_trace(file);
    return {{0, false, std::move(steps.trace), nlohmann::json::array(), steps.ranks}};
  }
  const std::string text = input_text(file, "a file that CRIMP_REPORT or CRIMP_TRACE wrote");
  if (is_trace_text(text)) {
    std::istringstream in(text);
    TraceSteps steps = steps_in_trace(in, file);
    return {{0, false, std::move(steps.trace), nlohmann::json::array(), steps.ranks}};
  }
  const auto report = parse_json(text);
  if (!report.is_object() || !report.contains("per_rank") || !report["per_rank"].is_array())
    throw bad("is no report of Crimp; legal is a file that CRIMP_REPORT or CRIMP_TRACE wrote");
  std::vector<Traced> out;
  try {
    const auto search = nlohmann::json::json_pointer("/horovod/merge/search");
    for (std::size_t rank = 0; rank < report["per_rank"].size(); ++rank) {
      const auto& of = report["per_rank"][rank];
      if (of.contains(search / "trace"))
        out.push_back({rank, true, StepTrace::parse(of[search / "trace"].dump()),
                       of[search].value("tried", nlohmann::json::array())});
      // All ranks have the same calls, so one of them is enough.
      if (rank == 0 && of.contains("steps"))
        for (const auto& trace : of["steps"]) out.push_back({rank, false, StepTrace::parse(trace.dump())});
    }
  } catch (const std::exception& e) {
    throw bad(std::string("has ") + e.what());
  }
  for (Traced& of : out) of.ranks = static_cast<int>(report["per_rank"].size());
  if (out.empty())
    throw bad(
        "has no trace of steps. They are recorded under Horovod with CRIMP_MERGE=auto, and for programs whose calls name their tensors or have shown which they carry");
  return out;
}

nlohmann::ordered_json show(const Traced& of, bool print) {
  const StepTrace& trace = of.trace;
  std::uint64_t bytes = 0;
  for (const auto& unit : trace.units) bytes += unit.bytes;
  double search_s = 0;
  const bool search = trace.units.size() <= kMostSearched;
  const std::vector<Row> rows = rows_of(trace, search, &search_s);
  if (!std::isfinite(rows.back().end_s))
    throw Error(
        ErrorCode::argument_invalid,
        "plan: the file has steps, but not what calls of other sizes take: a report has that where CRIMP_ALGORITHM is auto "
        "and calls have several sizes, a trace where they have; give a cluster (--link, ..., or --profile) for what it would take there");
  nlohmann::ordered_json out{{"rank", of.rank},
                             {"caller", of.horovod ? "horovod" : "program"},
                             {"tensors", trace.tensors.size()},
                             {"bytes", bytes},
                             {"step_ms", 1e3 * trace.step_s}};
  if (search) out["search_ms"] = 1e3 * search_s;
  if (print) {
    std::printf("%zu tensors in %zu %s, %.2f MB, of rank %zu%s: %llu steps, of %.2f ms\n", trace.tensors.size(),
                trace.units.size(), of.horovod ? "groups that may not be parted" : "calls",
                static_cast<double>(bytes) / kMega, of.rank, of.horovod ? " under Horovod" : "",
                static_cast<unsigned long long>(trace.steps), 1e3 * trace.step_s);
    std::printf("%-18s %7s %22s %16s\n", "# plan", "groups", "exchange ends [ms]", "step ran [ms]");
  }
  for (const Row& row : rows) {
    const Cuts cuts = trace.first_tensors(row.units.cuts);
    const auto ran_s = measured_s(of, cuts, row.units.codecs);
    nlohmann::ordered_json one{
        {"plan", row.name}, {"groups", cuts.size() + 1}, {"cuts", cuts}, {"ends_ms", 1e3 * row.end_s}};
    if (!row.units.codecs.empty()) one["codecs"] = row.units.codecs;
    if (ran_s) one["ran_ms"] = 1e3 * *ran_s;
    out["plans"].push_back(std::move(one));
    if (print)
      std::printf("%-18s %7zu %22.2f %16s\n", row.name.c_str(), cuts.size() + 1, 1e3 * row.end_s,
                  ran_s ? fmt::format("{:.2f}", 1e3 * *ran_s).c_str() : "-");
  }
  const Row& best = search ? rows.back() : *std::min_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.end_s < b.end_s;
  });
  const std::string setting = "CRIMP_MERGE=" + cuts_text(trace.first_tensors(best.units.cuts));
  if (of.horovod) out["setting"] = setting;
  if (!print) return out;
  if (search) std::printf("The optimum was found in %.2f ms. ", 1e3 * search_s);
  else
    std::printf("The optimum was not looked for: among more than %zu calls or groups that takes long. ", kMostSearched);
  if (of.horovod)
    std::printf(
        "To run it: %s\nTimes of calls are those that this job measured: of its codec, its network and its ranks.\n",
        setting.c_str());
  else
    std::printf(
        "The program makes these calls itself: it would have to merge them, or Horovod with CRIMP_MERGE=auto.\n");
  return out;
}

}  // namespace crimp::tools
