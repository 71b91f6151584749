#include "report/digest.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <stdexcept>

#include "core/error.hpp"
#include "core/pass_reason.hpp"
#include "core/settings.hpp"
#include "report/heat_map.hpp"
#include "report/hints.hpp"

namespace crimp::tools {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;

std::string date_text(double unix_s) {
  if (!(unix_s > 0 && unix_s < 1e11)) return "";
  const auto at = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  return ::gmtime_r(&at, &parts) ? fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts) : "";
}

Json sums_object(const CallSums& s) {
  // What is neither: looking at values, waiting for memory, agreeing, and what overlaps counts once.
  const double parts_s = s.encode_s + s.wire_s + s.decode_s;
  Json out{{"calls", s.calls},       {"bytes_in", s.bytes_in}, {"sent_bytes", s.sent_bytes},
           {"ratio", s.ratio()},     {"encode_s", s.encode_s}, {"wire_s", s.wire_s},
           {"decode_s", s.decode_s}, {"wait_s", nullptr},      {"other_s", std::max(0.0, s.total_s - parts_s)},
           {"total_s", s.total_s}};
  if (s.wait_s) out["wait_s"] = *s.wait_s;
  return out;
}

Json job_object(const Figures& f) {
  const json& job = object_in(f.report, "job");
  const json& hosts = object_in(job, "hosts");
  Json out{{"program", text_in(job, "program")},
           {"started", date_text(number_in(job, "started"))},
           {"ended", date_text(number_in(job, "ended"))},
           {"elapsed_s", nullptr},
           {"ranks", f.ranks},
           {"nodes", nullptr},
           {"hosts", Json::array()},
           {"hosts_left_out", 0},
           {"status", f.status},
           {"crimp", text_in(f.report, "crimp")},
           {"build", text_in(f.report, "build")},
           {"simd", text_in(f.report, "simd")}};
  if (job.empty()) return out;
  out["elapsed_s"] = std::max(0.0, number_in(job, "ended") - number_in(job, "started"));
  out["nodes"] = number_in(job, "nodes");
  std::size_t shown = 0;
  for (auto it = hosts.begin(); it != hosts.end() && shown < kShownHosts; ++it, ++shown)
    out["hosts"].push_back({{"name", it.key()}, {"ranks", number_in(hosts, it.key().c_str())}});
  out["hosts_left_out"] = hosts.size() - shown;
  return out;
}

// Those that differ from their defaults apart, in the order of the table; of another version by what stands there.
Json settings_object(const Figures& f) {
  Json changed = Json::array(), others = Json::array();
  for (const Option& option : option_table()) {
    const auto found = f.settings.find(option.name);
    if (found == f.settings.end()) continue;
    const std::string value = found->second, otherwise = option.default_value();
    (value == otherwise ? others : changed)
        .push_back({{"name", option.name}, {"value", value}, {"default", otherwise}});
  }
  for (const auto& [name, value] : f.settings) {
    const auto known = option_table();
    if (std::none_of(known.begin(), known.end(), [&](const Option& o) { return name == o.name; }))
      changed.push_back({{"name", name}, {"value", value}, {"default", nullptr}});
  }
  return {{"changed", changed}, {"others", others}};
}

Json saved_object(const Figures& f) {
  const auto otherwise = [](const TimeSums::Otherwise& of, const char* name) {
    return Json{
        {"calls", of.calls}, {"took_s", of.took_s}, {"own_s", of.own_s}, {name, of.s}, {"saved_s", of.s - of.own_s}};
  };
  const TimeSums& t = f.time;
  const Json known = t.plain() == nullptr             ? Json(nullptr)
                     : t.plain() == &t.plain_measured ? Json("measured")
                                                      : Json("predicted");
  const double ranks = f.ranks;
  return {{"bytes",
           {{"in", ranks * f.all.bytes_in},
            {"sent", ranks * f.all.sent_bytes},
            {"received", ranks * f.all.received_bytes},
            {"saved", ranks * (f.all.bytes_in - f.all.sent_bytes)},
            {"ratio", f.all.ratio()}}},
          {"time",
           {{"calls", t.calls},
            {"took_s", t.took_s},
            {"measured", otherwise(t.plain_measured, "plain_s")},
            {"predicted", otherwise(t.plain_predicted, "plain_s")},
            {"known", known},
            {"unknown_calls", t.calls - t.plain_measured.calls - t.plain_predicted.calls},
            {"best", otherwise(t.best, "best_s")}}}};
}

Json step_object(const Figures& f, const std::vector<StepPicture>& pictures) {
  if (!(f.steps > 0)) return nullptr;
  // Steps are counted by the tensors that are known: so are their calls, not those from before they were.
  CallSums known = f.all;
  if (const auto unknown = f.layouts.find("unknown"); unknown != f.layouts.end()) known += unknown->second * -1;
  Json out = sums_object((known.calls > 0 ? known : f.all) * (1 / f.steps));
  out["steps"] = f.steps;
  out["passed_calls"] = nullptr;  // which of them came before the steps that count is not known
  if (const auto unknown = f.layouts.find("unknown"); unknown == f.layouts.end() || !(unknown->second.calls > 0))
    out["passed_calls"] = f.passed_calls() / f.steps;
  out["step_s"] = nullptr;
  for (const StepPicture& p : pictures)
    if (p.step_s > 0 && out["step_s"].is_null()) out["step_s"] = p.step_s;
  return out;
}

Json named_sums(const std::map<std::string, CallSums>& of) {
  Json out = Json::array();
  for (const auto& [name, sums] : of) {
    Json one{{"name", name}};
    one.update(sums_object(sums));
    if (!sums.why.empty()) one["why"] = sums.why;
    out.push_back(std::move(one));
  }
  std::stable_sort(out.begin(), out.end(), [](const Json& a, const Json& b) {
    return a["total_s"].get<double>() > b["total_s"].get<double>();
  });
  return out;
}

Json sizes_object(const Figures& f) {
  Json out = Json::array();
  for (const auto& [bytes, sums] : f.sizes) {
    Json one{{"from_bytes", bytes}};
    one.update(sums_object(sums));
    out.push_back(std::move(one));
  }
  return out.empty() ? Json(nullptr) : out;
}

// Of all communicators: each has told of its own. The largest first.
Json tensors_object(const Figures& f) {
  std::vector<Json> all;
  double unlisted = 0;
  for (const json& rank : f.report["per_rank"]) {
    const json& tensors = object_in(rank, "tensors");
    unlisted += number_in(tensors, "unlisted_calls");
    for (const json& t : array_in(tensors, "listed")) {
      const double in = number_in(t, "bytes_in"), sent = number_in(t, "sent_bytes");
      Json one{{"name", text_in(t, "name")},
               {"source", text_in(t, "source")},
               {"elements", number_in(t, "elements")},
               {"calls", number_in(t, "calls")},
               {"bytes_in", in},
               {"sent_bytes", sent},
               {"ratio", sent > 0 ? in / sent : 0.0},
               {"codecs", Json::object()},
               {"memory", text_in(t, "memory")},
               {"residual", Json::array()}};
      const json& codecs = object_in(t, "codecs");
      for (auto it = codecs.begin(); it != codecs.end(); ++it)
        one["codecs"][it.key()] = number_in(codecs, it.key().c_str());
      for (const json& s : array_in(t, "residual"))
        one["residual"].push_back(
            {number_in(s, "call"), number_in(s, "at_s"), number_in(s, "norm"), number_in(s, "values_norm")});
      all.push_back(std::move(one));
    }
  }
  if (all.empty()) return nullptr;
  std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
    return a["bytes_in"].get<double>() > b["bytes_in"].get<double>();
  });
  const std::size_t total = all.size();
  if (all.size() > kShownTensors) all.resize(kShownTensors);
  return {{"tensors", total}, {"left_out", total - all.size()}, {"unlisted_calls", unlisted}, {"listed", all}};
}

Json plans_object(const std::vector<StepPicture>& pictures) {
  Json out = Json::array();
  for (const StepPicture& p : pictures) {
    Json one{{"rank", p.rank},         {"caller", p.horovod ? "horovod" : "program"},
             {"tensors", p.tensors},   {"bytes", p.bytes},
             {"steps", p.steps},       {"step_s", p.step_s},
             {"plan", p.plan},         {"end_s", p.end_s()},
             {"calls", Json::array()}, {"calls_left_out", 0},
             {"plans", Json::array()}};
    for (const auto& c : p.calls)
      if (one["calls"].size() < kShownCalls)
        one["calls"].push_back({{"tensors", c.tensors},
                                {"bytes", c.bytes},
                                {"ready_s", c.ready_s},
                                {"begin_s", c.begin_s},
                                {"end_s", c.end_s}});
    one["calls_left_out"] = p.calls.size() - one["calls"].size();
    for (const auto& plan : p.plans)
      one["plans"].push_back(
          {{"name", plan.name}, {"groups", plan.groups}, {"end_s", plan.end_s}, {"setting", plan.setting}});
    out.push_back(std::move(one));
    if (out.size() == 4) break;  // of the first communicators, or ranks
  }
  return out.empty() ? Json(nullptr) : out;
}

// As rank 0 has it: all ranks of a communicator decide alike.
Json control_object(const Figures& f) {
  Json out = Json::array();
  for (const json& of : array_in(f.report["per_rank"][0], "control")) {
    Json one{{"ladder", Json::array()},
             {"changes", number_in(of, "changes")},
             {"classes", Json::array()},
             {"decisions", Json::array()}};
    for (const json& codec : array_in(of, "ladder"))
      if (codec.is_string()) one["ladder"].push_back(codec.get<std::string>());
    for (const json& c : array_in(of, "classes")) {
      Json at = Json::array();
      for (const json& n : array_in(c, "calls_at_level")) at.push_back(n.is_number() ? n.get<double>() : 0);
      one["classes"].push_back({{"from_bytes", number_in(c, "from_bytes")},
                                {"calls", number_in(c, "calls")},
                                {"level", number_in(c, "level")},
                                {"calls_at_level", std::move(at)}});
    }
    for (const json& d : array_in(of, "decisions"))
      if (one["decisions"].size() < kShownDecisions)
        one["decisions"].push_back({{"call", number_in(d, "call")},
                                    {"from_bytes", number_in(d, "from_bytes")},
                                    {"from", number_in(d, "from")},
                                    {"to", number_in(d, "to")},
                                    {"why", text_in(d, "why")},
                                    {"wait_us", number_in(d, "wait_us")},
                                    {"target_us", number_in(d, "target_us")}});
    out.push_back(std::move(one));
  }
  return out.empty() ? Json(nullptr) : out;
}

Json passed_object(const Figures& f) {
  Json out = Json::array();
  const double all = f.all.calls + f.passed_calls();
  for (std::size_t i = 0; i < static_cast<std::size_t>(PassReason::count); ++i) {
    const auto reason = static_cast<PassReason>(i);
    const auto found = f.passed.find(name_of(reason));
    if (found == f.passed.end() || found->second <= 0) continue;
    out.push_back({{"name", found->first},
                   {"text", text_of(reason)},
                   {"calls", found->second},
                   {"share", all > 0 ? found->second / all : 0.0}});
  }
  for (const auto& [name, calls] : f.passed) {  // of another version
    const bool known = std::any_of(out.begin(), out.end(), [&, n = name](const Json& o) { return o["name"] == n; });
    if (calls > 0 && !known)
      out.push_back({{"name", name}, {"text", name}, {"calls", calls}, {"share", all > 0 ? calls / all : 0.0}});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Json& a, const Json& b) { return a["calls"].get<double>() > b["calls"].get<double>(); });
  return out;
}

Json excluded_object(const Figures& f) {
  const json& excluded = object_in(f.report["per_rank"][0], "excluded");
  const json& tensors = array_in(excluded, "tensors");
  Json out{{"calls", number_in(excluded, "calls")}, {"tensors", Json::array()}, {"left_out", 0}};
  for (const json& t : tensors)
    if (out["tensors"].size() < kShownRows)
      out["tensors"].push_back(
          {{"name", text_in(t, "name")}, {"elements", number_in(t, "elements")}, {"calls", number_in(t, "calls")}});
  out["left_out"] = tensors.size() - out["tensors"].size();
  return out;
}

Json advice_array(const std::vector<Hint>& all) {
  Json out = Json::array();
  for (const Hint& h : all)
    out.push_back({{"id", h.id},
                   {"level", h.level},
                   {"share", h.share},
                   {"figure", h.figure},
                   {"text", h.text},
                   {"try", h.advice}});
  return out;
}

Json missing_array(const Json& digest, const Figures& f) {
  Json out = Json::array();
  const auto say = [&](const char* section, const char* why, const char* how) {
    out.push_back({{"section", section}, {"why", why}, {"how", how}});
  };
  const bool old = !f.report.contains("timeline");
  const char* const again = "A report of a job with this version of Crimp has it.";
  if (digest["heat"].is_null())
    say("heat",
        old ? "This report is of a version of Crimp that kept no timeline." : "No call was compressed or timed.",
        old ? again : "");
  if (digest["tensors"].is_null())
    say("tensors",
        old ? "This report is of a version of Crimp that kept nothing of single tensors."
            : "No tensor of a compressed call was known by a name.",
        old ? again : "Tensors have names by crimp_allreduce, Horovod or crimp.torch (docs/tensors.md).");
  if (digest["job"]["elapsed_s"].is_null()) say("job", "This report does not say when and where the job ran.", again);
  if (digest["step"].is_null())
    say("step", "How many steps the job had is not known.", "Tensors with names tell it (docs/tensors.md).");
  else if (digest["step"]["wait_s"].is_null())
    say("wait", "Waiting for a late rank is not separated from the wire.", "CRIMP_SKEW=1 tells it apart.");
  if (digest["plans"].is_null())
    say("plans", "No steps were traced.",
        "They are under Horovod with CRIMP_MERGE=auto, and for programs whose calls have tensors that are known.");
  if (digest["control"].is_null())
    say("control", "CRIMP_CONTROL changed no codecs.", "CRIMP_CONTROL=delay does (docs/control.md).");
  if (!(f.time.calls > 0))
    say("time", "What calls would have taken without Crimp is not known.",
        old ? again : "It is of calls that have a codec.");
  return out;
}

}  // namespace

Json digest_of(const Figures& f) {
  const std::vector<StepPicture> pictures = step_pictures(f);
  try {
    Json out{{"file", f.file},
             {"job", job_object(f)},
             {"settings", settings_object(f)},
             {"saved", saved_object(f)},
             {"calls", {{"compressed", sums_object(f.all)}, {"passed", f.passed_calls()}, {"errors", f.errors}}},
             {"step", step_object(f, pictures)},
             {"heat", heat_map(f)},
             {"sizes", sizes_object(f)},
             {"codecs", named_sums(f.codecs)},
             {"algorithms", named_sums(f.algorithms)},
             {"layouts", named_sums(f.layouts)},
             {"ranks", ranks_object(f)},
             {"tensors", tensors_object(f)},
             {"plans", plans_object(pictures)},
             {"control", control_object(f)},
             {"passed", passed_object(f)},
             {"excluded", excluded_object(f)},
             {"advice", advice_array(hints_of(f, pictures))}};
    out["missing"] = missing_array(out, f);
    return out;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::argument_invalid, "'" + f.file + "' is damaged: it has " + e.what());
  }
}

}  // namespace crimp::tools
