#include "report/hints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "core/plain_text.hpp"
#include "core/settings.hpp"
#include "report/finding.hpp"

namespace crimp::tools {
namespace {

double passed(const Job& j, const char* why) {
  const auto found = j.f.passed.find(why);
  return found == j.f.passed.end() ? 0 : found->second;
}
double all_calls(const Job& j) { return j.f.all.calls + j.f.passed_calls(); }

Maybe off(const Job& j) {
  if (j.f.status.empty() || j.f.status == "on" || setting(j, "CRIMP_CODEC", "") == "none") return {};
  return Finding{
      0, "status: " + j.f.status, "Crimp compressed nothing in this job.",
      j.f.status == "no lossy codec chosen"
          ? "Name a codec, as in CRIMP_CODEC=3lc."
          : "Read what the job said at its start; `crimp info --env` lists the settings with their legal values."};
}

Maybe failed(const Job& j) {
  if (j.f.errors <= 0) return {};
  return Finding{0, fmt::format("{:.0f} calls failed, of all ranks together", j.f.errors),
                 "Calls ended with an MPI error.", "docs/errors.md says what each error means and what to do."};
}

Maybe nothing_caught(const Job& j) {
  if (all_calls(j) > 0 || j.f.status != "on") return {};
  return Finding{0, "0 calls", "No call of this job reached Crimp.",
                 "`crimp check -- PROGRAM` says which reductions a program calls and where they lead."};
}

// All calls passed.
Maybe nothing_compressed(const Job& j) {
  if (j.f.status != "on" || j.f.all.calls > 0 || j.f.passed.empty()) return {};
  const auto most = std::max_element(j.f.passed.begin(), j.f.passed.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (!(most->second > 0)) return {};
  return Finding{0, fmt::format("{:.0f} calls passed, most of them as '{}'", all_calls(j), most->first),
                 "No call of this job was compressed.",
                 "The table of calls that passed has the reasons, and docs/troubleshooting.md what to do about each."};
}

Maybe below_min_count(const Job& j) {
  const double share = all_calls(j) > 0 ? passed(j, "small") / all_calls(j) : 0;
  if (share < 0.25) return {};
  const double least = std::max(1.0, j.f.setting("CRIMP_MIN_COUNT"));
  const double fewer = std::max(1024.0, std::floor(least / 4));
  return Finding{
      0,
      fmt::format("{:.0f} of {:.0f} calls ({}); the time of calls that pass is not measured", passed(j, "small"),
                  all_calls(j), percent(share)),
      fmt::format("Many calls have fewer than CRIMP_MIN_COUNT={:.0f} elements and pass to MPI.", least),
      fmt::format("If they are gradients: merge them{}. If they are losses and counters, this is as it should be.",
                  fewer < least ? fmt::format(", or try CRIMP_MIN_COUNT={:.0f}", fewer) : std::string())};
}

// Whether a codec keeps something of tensors, so that those that are not known have another one.
bool needs_names(const std::string& codec) {
  try {
    return codec.empty() || codec == "auto" || make_codec(codec)->feedback().kept();
  } catch (const Error&) {  // of another version
    return true;
  }
}

Maybe unknown_tensors(const Job& j) {
  const UnknownCalls unknown = encoded_unknown(j);
  const auto share_of = [&](const UnknownCalls::Bound& b) { return j.f.all.calls > 0 ? b.calls / j.f.all.calls : 0; };
  if (share_of(unknown.most) < 0.2 || !needs_names(setting(j, "CRIMP_CODEC", ""))) return {};
  const bool certain = unknown.exactly || share_of(unknown.least) >= 0.2;
  const UnknownCalls::Bound& told = certain ? unknown.least : unknown.most;
  return Finding{
      j.f.all.total_s > 0 ? told.total_s / j.f.all.total_s : 0,
      fmt::format("{}{:.0f} of {:.0f} compressed calls ({}){}",
                  unknown.exactly ? ""
                  : certain       ? "at least "
                                  : "up to ",
                  told.calls, j.f.all.calls, percent(share_of(told)),
                  certain ? "" : "; how many of them node_sum added up exactly is not known"),
      fmt::format("The tensors of these calls are not known: they have no residuals and use CRIMP_UNKNOWN_LAYOUT={}.",
                  setting(j, "CRIMP_UNKNOWN_LAYOUT", "fp16")),
      "Name the tensors: crimp_allreduce, Horovod, or crimp.torch (docs/tensors.md)."};
}

Maybe excluded(const Job& j) {
  const double calls = passed(j, "rules"), share = all_calls(j) > 0 ? calls / all_calls(j) : 0;
  if (share < 0.25) return {};
  return Finding{0, fmt::format("{:.0f} of {:.0f} calls ({})", calls, all_calls(j), percent(share)),
                 "Calls pass because CRIMP_RULES has their tensors summed exactly.",
                 "Narrower patterns in CRIMP_RULES, if those tensors may be compressed; else merge them with others."};
}

Maybe out_of_range(const Job& j) {
  const double calls = passed(j, "range") + passed(j, "outlier");
  const double share = all_calls(j) > 0 ? calls / all_calls(j) : 0;
  if (share < 0.02) return {};
  return Finding{0, fmt::format("{:.0f} of {:.0f} calls ({})", calls, all_calls(j), percent(share)),
                 "Calls pass because of NaN, Inf, or values far from the usual.",
                 "Look at loss scaling and clipping: the training itself has these values."};
}

Maybe idle_rules(const Job& j) {
  std::map<std::string, std::size_t> idle;  // on how many ranks
  std::string first;
  std::size_t ranks = 0;
  for (const auto& rank : j.f.report["per_rank"]) {
    const auto& rules = object_in(rank, "rules");
    if (rules.empty()) continue;
    ++ranks;
    if (first.empty()) first = text_in(rules, "first_tensor");
    for (const auto& pattern : array_in(rules, "idle")) ++idle[pattern.get<std::string>()];
  }
  if (ranks && first.empty())
    return Finding{0, "no compressed call named its tensors", "CRIMP_RULES was not used: rules go by tensors' names.",
                   "Names come from crimp_allreduce, Horovod, or crimp.torch (docs/tensors.md)."};
  std::string patterns;
  std::size_t found = 0;
  for (const auto& [pattern, of] : idle)
    if (of == ranks && ++found <= 3) patterns += (patterns.empty() ? "'" : ", '") + pattern + "'";
  if (found == 0) return {};
  if (found > 3) patterns += fmt::format(" and {} more", found - 3);
  return Finding{
      0, fmt::format("{}; the first tensor is called '{}'", patterns, first),
      "No tensor that was compressed came to these patterns of CRIMP_RULES: no name matches, or earlier rules took them all.",
      "A pattern is for the whole name, as in '*fc1*'; the first rule that matches is taken."};
}

Maybe no_gradient(const Job& j) {
  const double calls = passed(j, "no_gradient");
  const double share = all_calls(j) > 0 ? calls / all_calls(j) : 0;
  if (share < 0.2) return {};
  return Finding{
      0, fmt::format("{:.0f} of {:.0f} calls ({})", calls, all_calls(j), percent(share)),
      "Calls pass because their values are whole numbers, all of one sign, or go on where an earlier sum ended (averages of "
      "parameters), which no gradient does.",
      "Metrics are so summed exactly. If these are gradients: name them by crimp_allreduce (docs/tensors.md)."};
}

Maybe no_memory(const Job& j) {
  const double calls = passed(j, "memory");
  if (calls <= 0) return {};
  return Finding{
      0, fmt::format("{:.0f} calls", calls), "Calls pass because a rank was out of memory.",
      "Fewer ranks a host, or CRIMP_ERROR_FEEDBACK=0, which keeps no residuals (docs/quality.md says what that costs)."};
}

Maybe in_device_memory(const Job& j) {
  double staged = 0, host = 0;
  for (const auto& rank : j.f.report["per_rank"]) {
    const auto& device = object_in(rank, "device");
    staged += number_in(device, "passed_staged");
    const auto& why = object_in(device, "through_host");
    for (auto it = why.begin(); it != why.end(); ++it) host += number_in(why, it.key().c_str());
  }
  if (staged + host <= 0) return {};
  return Finding{
      0, fmt::format("{:.0f} calls, of all ranks together", staged + host),
      "Values in device memory were copied through the host.",
      "docs/gpu.md, \"Bad days\", says for which calls and why; CRIMP_CUDA_AWARE tells Crimp what MPI takes."};
}

Maybe nonblocking(const Job& j) {
  const double calls = passed(j, "nonblocking");
  const double share = all_calls(j) > 0 ? calls / all_calls(j) : 0;
  if (share < 0.2) return {};
  return Finding{
      0, fmt::format("{:.0f} of {:.0f} calls ({})", calls, all_calls(j), percent(share)),
      "Sums that do not block pass, because one exchange of payloads would not shorten them.",
      "CRIMP_PROGRESS=thread carries them by every algorithm while the program computes (docs/nonblocking.md)."};
}

// That matches the name, and can stand in a rule.
std::string pattern_of(std::string name) {
  for (char& c : name)
    if (std::string_view("*?[]\\;|=<> ").find(c) != std::string_view::npos) c = '?';
  return name;
}

// What waits keeps growing: more is lost than comes back.
Maybe growing_residuals(const Job& j) {
  std::string worst, codec;
  double most = 0, times = 0, listed = 0, growing = 0;
  for (const auto& rank : j.f.report["per_rank"])
    for (const auto& tensor : array_in(object_in(rank, "tensors"), "listed")) {
      const auto& samples = array_in(tensor, "residual");
      if (samples.size() < 5 || text_in(tensor, "memory") != "residual") continue;
      ++listed;
      const double last = number_in(samples.back(), "norm"), before = number_in(samples[samples.size() - 3], "norm");
      const double values = number_in(samples.back(), "values_norm");
      if (!(values > 0 && before > 0 && last >= 1.8 * before && last >= 10 * values)) continue;
      ++growing;
      if (last / values > most) {
        most = last / values, times = last / before, worst = text_in(tensor, "name");
        const auto& codecs = object_in(tensor, "codecs");
        codec = codecs.empty() ? "" : codecs.begin().key();
      }
    }
  if (growing == 0) return {};
  return Finding{
      0,
      fmt::format(
          "{:.0f} of {:.0f} sampled tensors; '{}': its residual is {:.0f} times the norm of its gradients, and grew {:.1f}fold over the last two samples",
          growing, listed, worst, most, times),
      "Residuals grow: the codec leaves more of these tensors than it sends.",
      worst.starts_with("#")
          ? fmt::format(
                "A milder codec, as CRIMP_CODEC=8bit:memory=residual, instead of {}; or names, so that it can be one for these tensors alone.",
                codec)
          : fmt::format("A milder codec for them, as CRIMP_RULES={}, instead of {}.",
                        in_shell(fmt::format("{}=8bit:memory=residual; {}", pattern_of(worst),
                                             setting(j, "CRIMP_RULES", Settings().rules.c_str()))),
                        codec)};
}

Maybe not_repeated(const Job& j) {
  double calls = 0;
  for (const auto& rank : j.f.report["per_rank"]) calls += number_in(object_in(rank, "replay"), "calls_missing");
  if (calls <= 0) return {};
  return Finding{0, fmt::format("{:.0f} calls, of all ranks together", calls),
                 "CRIMP_REPLAY names a report that does not have all calls of this job.",
                 "Record a report with this program, these settings and this number of ranks (docs/determinism.md)."};
}

Maybe lost_notes(const Job& j) {
  if (j.f.unrecorded <= 0) return {};
  return Finding{0, fmt::format("{:.0f} notes", j.f.unrecorded), "Parts of this report are missing for want of memory.",
                 "More memory for each rank; what the page says of the rest is as it was."};
}

enum Level { low, medium, high };
constexpr const char* kLevels[] = {"low", "medium", "high"};

struct Rule {
  const char* id;
  Level least;  // whatever its share
  Maybe (*look)(const Job&);
};
// At equal shares in this order.
constexpr Rule kRules[] = {
    {"off", high, off},
    {"failed", high, failed},
    {"nothing_caught", high, nothing_caught},
    {"nothing_compressed", high, nothing_compressed},
    {"no_memory", high, no_memory},
    {"does_not_pay", low, does_not_pay},
    {"tried", low, tried},
    {"wire_bound", low, wire_bound},
    {"codec_bound", low, codec_bound},
    {"late_rank", low, late_rank},
    {"short_calls", low, short_calls},
    {"better_plan", low, better_plan},
    {"saving", low, saving},
    {"unknown_tensors", low, unknown_tensors},
    {"growing_residuals", medium, growing_residuals},
    {"out_of_range", medium, out_of_range},
    {"idle_rules", medium, idle_rules},
    {"no_gradient", low, no_gradient},
    {"nonblocking", low, nonblocking},
    {"below_min_count", low, below_min_count},
    {"excluded", low, excluded},
    {"in_device_memory", low, in_device_memory},
    {"not_repeated", low, not_repeated},
    {"lost_notes", low, lost_notes},
};

}  // namespace

std::vector<Hint> hints_of(const Figures& figures, const std::vector<StepPicture>& pictures) {
  const Job job{figures, pictures, figures.time.took_s > 0 ? figures.time.took_s : figures.all.total_s};
  std::vector<Hint> out;
  for (const Rule& rule : kRules) {
    auto found = rule.look(job);
    if (!found) continue;
    const double share = std::min(1.0, found->share);
    const Level level = std::max(rule.least, share >= 0.3 ? high : share >= 0.1 ? medium : low);
    out.push_back(
        {rule.id, kLevels[level], share, std::move(found->figure), std::move(found->text), std::move(found->advice)});
  }
  const auto rank = [](const Hint& a) { return a.level == "high" ? 2 : a.level == "medium" ? 1 : 0; };
  std::stable_sort(out.begin(), out.end(), [&](const Hint& a, const Hint& b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a.share > b.share;
  });
  if (out.empty())
    out.push_back(
        {"fine", "low", 0,
         figures.all.calls > 0 ? fmt::format("{:.0f} calls compressed {:.1f} times, {} in calls", figures.all.calls,
                                             figures.all.ratio(), time_text(job.took_s))
                               : fmt::format("no call compressed, {:.0f} passed", figures.passed_calls()),
         "No rule found anything that takes a tenth of the time in calls or more.",
         setting(job, "CRIMP_CODEC", "") == "none"
             ? "CRIMP_CODEC=none leaves all calls to MPI; the name of a codec, as CRIMP_CODEC=3lc, has them compressed."
             : "Nothing needs to be changed."});
  return out;
}

}  // namespace crimp::tools
