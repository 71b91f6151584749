#include "trace_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "core/pass_reason.hpp"
#include "input_file.hpp"

namespace crimp::tools {
namespace {

using nlohmann::json;

constexpr std::size_t kBegin = 1 << 16;  // of a file, where its kind is looked for

struct Call {
  std::string name;
  std::uint64_t bytes;
  double begin_s, end_s;
  bool blocks;
  double seconds() const { return end_s - begin_s; }
};

// Neither a maximum nor whole numbers are a gradient's.
bool may_be_sum(const std::string& why) {
  return why != text_of(PassReason::operation) && why != text_of(PassReason::type);
}

// MPI's calls have no names, and which of a step's go to MPI may differ from step to step (CRIMP_ALGORITHM=auto).
bool same(const Call& a, const Call& b) {
  return a.bytes == b.bytes && (a.name == b.name || a.name.empty() || b.name.empty());
}

// Of rank 0 alone: all ranks have the same calls.
class StepReader {
 public:
  std::vector<Call> calls;  // by their begins
  int ranks = 0;
  bool horovod = false;

  void event(const json& e) {
    const int pid = e.at("pid");
    ranks = std::max(ranks, pid);
    const std::string ph = e.at("ph");
    if (pid != 1 || (ph != "X" && ph != "b" && ph != "e")) return;
    const double at_s = 1e-6 * e.at("ts").get<double>();
    if (ph == "e") {
      const auto begun = open_.find(e.at("id2").at("local"));
      if (begun != open_.end()) calls[begun->second].end_s = at_s;
      return;
    }
    const json& args = e.at("args");
    const double end_s = at_s + 1e-6 * e.value("dur", 0.0);
    if (const std::string track = e.at("cat"); track == "passed to MPI") {
      if (const std::uint64_t elements = args.at("elements"); elements > 0 && may_be_sum(e.at("name")))
        calls.push_back({"", 4 * elements, at_s, end_s, true});
    } else if (track == "calls" || ph == "b") {
      horovod |= args.at("tensors") == "negotiated";
      // A sum that a thread carries is in the trace twice: from the program's call on, and as the thread's call.
      if (ph == "X" && args.at("algorithm") == "") return;
      if (ph == "b") open_[e.at("id2").at("local")] = calls.size();
      calls.push_back({e.at("name"), args.at("bytes"), at_s, end_s, ph == "X"});
    }
  }

  void sort() {
    std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin_s < b.begin_s; });
  }

 private:
  std::map<std::string, std::size_t> open_;
};

struct Run {
  std::size_t period = 0;  // 0: there is none
  std::size_t first = 0, end = 0;
};

// The fewest calls after which the same ones come again, and the calls that do: half of all at least, three periods, up
// to the last but a few, because what a program does at its end is no step. Nothing where that takes more than
// kMostCompared comparisons, a second or so: calls that come again in part would take time with their square.
Run find_steps(const std::vector<Call>& calls) {
  constexpr std::size_t kLeftOut = 64, kMostCompared = std::size_t{1} << 27;
  std::size_t compared = 0;
  for (std::size_t period = 1; 3 * period <= calls.size(); ++period)
    for (std::size_t out = 0; out <= kLeftOut && 3 * period + out <= calls.size(); ++out) {
      const std::size_t end = calls.size() - out;
      std::size_t first = end - period;
      while (first > 0 && same(calls[first - 1], calls[first - 1 + period])) --first;
      if (end - first >= std::max(3 * period, calls.size() / 2)) return {period, first, end};
      if ((compared += end - period - first + 1) > kMostCompared) return {};
      out += end - period - first;  // to where the calls differ, which ends all that begin behind it
    }
  return {};
}

// The longest time of the program's own, by median, is where a step begins: in front of which call of a period.
std::size_t begin_of_step(const std::vector<Call>& calls, std::size_t first, std::size_t end, std::size_t period) {
  std::vector<std::vector<double>> gaps(period);
  for (std::size_t i = std::max<std::size_t>(first, 1); i < end; ++i)
    gaps[(i - first) % period].push_back(calls[i].begin_s - calls[i - 1].end_s);
  std::size_t best = 0;
  double longest = -1;
  for (std::size_t at = 0; at < period; ++at)
    if (const double gap = median(gaps[at]); gap > longest) longest = gap, best = at;
  return best;
}

StepTrace steps_of(const std::vector<Call>& calls, std::size_t begin, std::size_t steps, std::size_t period) {
  StepTrace out;
  const Call* const first = calls.data() + begin;
  out.stalls = std::all_of(first, first + period, [](const Call& c) { return c.blocks; });
  out.steps = steps;
  std::map<std::uint64_t, std::vector<double>> seconds;
  std::map<std::string, int> names;
  std::vector<double> lengths;
  for (std::size_t at = 0; at < period; ++at) {
    std::vector<double> ready;
    for (std::size_t s = 0; s < steps; ++s) {
      const Call* const step = first + s * period;
      const double from_s = step == calls.data() ? step->begin_s : (step - 1)->end_s;
      double own_s = step[at].begin_s - from_s;
      if (out.stalls)  // without the calls so far
        for (std::size_t before = 0; before < at; ++before) own_s -= step[before].seconds();
      ready.push_back(std::max(0.0, own_s));
      seconds[step[at].bytes].push_back(step[at].seconds());
      if (at == 0 && s + 1 < steps) lengths.push_back(step[period].begin_s - step->begin_s);
    }
    const Call& call = first[at];
    std::string name;
    for (std::size_t s = 0; s < steps && name.empty(); ++s) name = first[s * period + at].name;
    if (name.empty()) name = fmt::format("call {}", at + 1);
    if (const int before = names[name]++) name += fmt::format(" ({})", before + 1);
    const double after_s = out.units.empty() ? 0 : out.units.back().ready_s;
    out.units.push_back({1, call.bytes, std::max(after_s, median(ready))});
    out.tensors.push_back(std::move(name));
  }
  out.step_s = median(lengths);
  std::vector<std::vector<Curve::Point>> of_sizes;
  for (const auto& [bytes, all] : seconds) {
    of_sizes.emplace_back();
    for (const double s : all) of_sizes.back().push_back({static_cast<double>(bytes), s});
  }
  out.calls = {curve_of(of_sizes)};
  return out;
}

}  // namespace

bool is_trace(const std::string& file) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return false;  // a pipe is read once
  std::ifstream in(file, std::ios::binary);
  std::string begin(kBegin, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(in.gcount()));
  return is_trace_text(begin);
}

bool is_trace_text(const std::string& text) {
  return std::string_view(text).substr(0, kBegin).find("\"traceEvents\"") != std::string_view::npos;
}

TraceSteps steps_in_trace(const std::string& file) {
  std::ifstream in = input_file(file);
  if (!in)
    throw Error(ErrorCode::argument_invalid, "'" + file + "' cannot be read; legal is a file that CRIMP_TRACE wrote");
  return steps_in_trace(in, file);
}

TraceSteps steps_in_trace(std::istream& in, const std::string& file) {
  const auto bad = [&](const std::string& why) { return Error(ErrorCode::argument_invalid, "'" + file + "' " + why); };
  StepReader reader;
  bool events = false, damaged = false;
  // Events are taken as they come, so that what is kept of a long trace is little. Exceptions may not leave the
  // parser's callback.
  const auto take = [&](int depth, json::parse_event_t what, json& parsed) {
    if (depth > kMostNesting) return damaged = true, false;
    if (what == json::parse_event_t::key && depth == 1) events = parsed == "traceEvents";
    if (what != json::parse_event_t::object_end || depth != 2 || !events) return true;
    try {
      reader.event(parsed);
    } catch (const json::exception&) {
      damaged = true;
    }
    return false;
  };
  if (json::parse(in, take, false).is_discarded() || damaged)
    throw bad("is no trace of Crimp, or not all of it; legal is a file that CRIMP_TRACE wrote");
  if (reader.horovod)
    throw bad(
        "is of calls that Horovod makes, which differ from step to step: its tensors and steps are in what CRIMP_REPORT writes, with CRIMP_MERGE=auto");
  reader.sort();
  const Run run = find_steps(reader.calls);
  if (!run.period)
    throw bad(fmt::format(
        "has no steps: of the {} sums that rank 0 asked for, none were found to come again three times in one order",
        reader.calls.size()));
  const std::size_t begin = run.first + begin_of_step(reader.calls, run.first, run.end, run.period);
  return {steps_of(reader.calls, begin, (run.end - begin) / run.period, run.period), reader.ranks};
}

}  // namespace crimp::tools
