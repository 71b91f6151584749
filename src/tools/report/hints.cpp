#include "report/hints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "core/plain_text.hpp"
#include "core/settings.hpp"

namespace crimp::tools {
namespace {

struct Finding {
  double share;
  std::string figure, text, advice;
};

struct Job {
  const Figures& f;
  const std::vector<StepPicture>& pictures;
  double took_s;  // per rank, in calls: of the account of times, or of what was compressed where there is none
};

std::string time_text(double s) { return s >= 1 ? fmt::format("{:.2f} s", s) : fmt::format("{:.1f} ms", 1e3 * s); }
double passed(const Job& j, const char* why) {
  const auto found = j.f.passed.find(why);
  return found == j.f.passed.end() ? 0 : found->second;
}
double all_calls(const Job& j) { return j.f.all.calls + j.f.passed_calls(); }
std::string setting(const Job& j, const char* name, const char* otherwise) {
  const auto found = j.f.settings.find(name);
  return found == j.f.settings.end() ? otherwise : found->second;
}

using Maybe = std::optional<Finding>;

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

Maybe late_rank(const Job& j) {
  if (j.f.of_rank.size() < 2) return {};
  if (j.f.all.wait_s) {
    const double all_s = j.f.all.total_s + *j.f.all.wait_s, share = all_s > 0 ? *j.f.all.wait_s / all_s : 0;
    if (share < 0.2) return {};
    std::size_t late = 0;
    double most_s = -1;
    for (std::size_t r = 0; r < j.f.of_rank.size(); ++r)
      if (const double s = number_in(object_in(j.f.report["per_rank"][r], "skew"), "late_s"); s > most_s)
        most_s = s, late = r;
    return Finding{
        share,
        fmt::format(
            "{} ahead of compressed calls of {}, the mean of all ranks; all others together waited {} for rank {}",
            time_text(*j.f.all.wait_s), time_text(j.f.all.total_s), time_text(most_s), late),
        "Ranks wait for a late one; no codec shortens that.",
        fmt::format("Look at rank {}: its data, its cores, its host. `crimp trace` has it call by call.", late)};
  }
  std::size_t late = 0;
  const auto takes_part = [&](std::size_t r) { return j.f.of_rank[r].calls > 0; };
  for (std::size_t r = 1; r < j.f.of_rank.size(); ++r)
    if (takes_part(r) && (!takes_part(late) || j.f.of_rank[r].wire_s < j.f.of_rank[late].wire_s)) late = r;
  if (!takes_part(late)) return {};
  const double more_s = j.f.all.wire_s - j.f.of_rank[late].wire_s;
  const double share = j.f.all.total_s > 0 ? more_s / j.f.all.total_s : 0;
  if (share < 0.2) return {};
  return Finding{
      share,
      fmt::format("rank {} is on the wire for {}, the mean for {}", late, time_text(j.f.of_rank[late].wire_s),
                  time_text(j.f.all.wire_s)),
      fmt::format("Rank {} waits least for the others, so it may be the one that they wait for.", late),
      fmt::format("Look at rank {}: its data, its cores, its host. A run with CRIMP_SKEW=1 says for certain.", late)};
}

// Plain MPI would have been faster. A prediction knows no late rank, which calls have waited for, and is nothing
// against what was measured.
Maybe does_not_pay(const Job& j) {
  const TimeSums::Otherwise &measured = j.f.time.plain_measured, &predicted = j.f.time.plain_predicted;
  const auto lost_s = [](const TimeSums::Otherwise& of) { return of.own_s - of.s; };
  const auto much = [&](double s) { return j.took_s > 0 && s > 0.1 * j.took_s; };
  const bool by_measured = much(lost_s(measured));
  const bool by_both = much(lost_s(predicted)) && much(lost_s(measured) + lost_s(predicted)) && !late_rank(j);
  if (!by_measured && !by_both) return {};
  const TimeSums::Otherwise& plain = by_measured ? measured : predicted;
  return Finding{
      (by_measured ? lost_s(measured) : lost_s(measured) + lost_s(predicted)) / j.took_s,
      fmt::format("{} in {:.0f} calls for which plain MPI was {}, at {}", time_text(plain.own_s), plain.calls,
                  by_measured ? "measured" : "predicted", time_text(plain.s)),
      "Calls took longer than plain MPI would have: what was measured and tried at the beginning, or a network that needs no compression.",
      "A longer job pays for its beginning once; CRIMP_REPLAY with this report repeats its decisions without trying. Where that is not it: CRIMP_CODEC=none."};
}

// The fastest that was measured would have been faster still.
Maybe tried(const Job& j) {
  const auto& best = j.f.time.best;
  const double regret_s = best.own_s - best.s;
  const auto& plain = j.f.time.plain_measured;
  if (!(j.took_s > 0 && regret_s > 0.1 * j.took_s) || plain.own_s - plain.s > 0.1 * j.took_s) return {};
  return Finding{
      regret_s / j.took_s,
      fmt::format("{} in {:.0f} calls; by the fastest that was measured {}", time_text(best.own_s), best.calls,
                  time_text(best.s)),
      "Calls took longer than the fastest algorithm that was measured for them: the first ones measure and try.",
      "CRIMP_REPLAY with this report takes what it found from the first call on; or name the algorithm of the table in CRIMP_ALGORITHM."};
}

// Short calls that bring little and take much.
Maybe short_calls(const Job& j) {
  constexpr std::uint64_t kShort = 256 * 1024;
  CallSums little;
  for (const auto& [bytes, sums] : j.f.sizes)
    if (bytes < kShort) little += sums;
  // What was measured and tried ahead of calls is none of the three.
  const auto at_work = [](const CallSums& of) { return of.encode_s + of.wire_s + of.decode_s; };
  const double share = at_work(j.f.all) > 0 ? at_work(little) / at_work(j.f.all) : 0;
  const double of_bytes = j.f.all.bytes_in > 0 ? little.bytes_in / j.f.all.bytes_in : 0;
  if (!(share >= 0.25 && of_bytes <= 0.5 * share)) return {};
  return Finding{
      share, fmt::format("{} of the time in compressed calls, {} of their bytes", percent(share), percent(of_bytes)),
      "Much time goes to calls of less than 256 KiB, whose time is latency.",
      "Merge tensors: CRIMP_MERGE=auto under Horovod, larger buckets in DDP, or several tensors in one crimp_allreduce."};
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

// The part of the time that compressed calls which do not block have: how long they are under way is in no figure.
double without_wire(const Job& j) {
  double time_s = 0;
  for (const auto& [_, sums] : j.f.algorithms)
    if (const auto found = sums.why.find("nonblocking"); found != sums.why.end())
      time_s += sums.total_s * found->second / std::max(1.0, sums.calls);
  return j.f.all.total_s > 0 ? time_s / j.f.all.total_s : 0;
}

Maybe codec_bound(const Job& j) {
  const double busy_s = j.f.all.encode_s + j.f.all.decode_s;
  const double share = j.f.all.total_s > 0 ? busy_s / j.f.all.total_s : 0;
  if (share < 0.4 || without_wire(j) >= 0.2) return {};
  constexpr double kMostThreads = 256;
  const double threads = 2 * std::max(1.0, j.f.setting("CRIMP_THREADS"));
  const std::string more_threads =
      threads <= kMostThreads ? fmt::format("CRIMP_THREADS={:.0f} where cores are free; or a", threads) : "A";
  const std::string cheaper =
      std::string(" codec that costs less (`crimp bench codec`)") +
      (setting(j, "CRIMP_CODEC", "").starts_with("fp16") ? "." : ", as 8bit:memory=residual or fp16.");
  return Finding{
      share,
      fmt::format("{} of {} in compressed calls encoding and decoding", time_text(busy_s), time_text(j.f.all.total_s)),
      "The processor bounds the calls, not the network.", more_threads + cheaper};
}

Maybe wire_bound(const Job& j) {
  // The least of all ranks: others wait there for a late one, which is no network's.
  double wire_s = j.f.all.wire_s;
  for (const CallSums& rank : j.f.of_rank)
    if (rank.calls > 0) wire_s = std::min(wire_s, rank.wire_s);
  const double all_s = j.f.all.total_s + j.f.all.wait_s.value_or(0);
  const double share = all_s > 0 ? wire_s / all_s : 0;
  if (share < 0.5 || j.f.all.ratio() >= 16) return {};
  const std::string codec = setting(j, "CRIMP_CODEC", "");
  const auto unknown = j.f.layouts.find("unknown");
  const bool named = unknown == j.f.layouts.end() || unknown->second.calls < 0.5 * j.f.all.calls;
  const std::string stronger = !named || codec.starts_with("3lc:s=1.9") ? ""
                               : codec.starts_with("3lc")               ? "3lc:s=1.9"
                                                                        : "3lc";
  return Finding{
      share,
      fmt::format("{} of {} in compressed calls on the wire, at a ratio of {:.1f}", time_text(wire_s),
                  time_text(j.f.all.total_s), j.f.all.ratio()),
      "The network bounds the calls.",
      !named
          ? "Name the tensors (docs/tensors.md): without names stronger codecs, which keep residuals, fall back to 16 bits."
      : setting(j, "CRIMP_CONTROL", "off") == "off"
          ? (stronger.empty() ? std::string("A stronger codec, as CRIMP_CODEC=topk:ratio=0.01")
                              : fmt::format("A stronger codec, as CRIMP_CODEC={}", stronger)) +
                " (docs/quality.md: what each costs in accuracy), or CRIMP_CONTROL=delay, which takes as much as is necessary."
          : "The ladder's last levels decide: CRIMP_LADDER can have stronger ones, CRIMP_DELAY_TARGET a smaller target."};
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
  const auto found = j.f.layouts.find("unknown");
  const double calls = found == j.f.layouts.end() ? 0 : found->second.calls;
  const double share = j.f.all.calls > 0 ? calls / j.f.all.calls : 0;
  if (share < 0.2 || !needs_names(setting(j, "CRIMP_CODEC", ""))) return {};
  return Finding{
      j.f.all.total_s > 0 ? found->second.total_s / j.f.all.total_s : 0,
      fmt::format("{:.0f} of {:.0f} compressed calls ({})", calls, j.f.all.calls, percent(share)),
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

Maybe better_plan(const Job& j) {
  const StepPicture* best = nullptr;
  double most = 0;
  for (const StepPicture& p : j.pictures) {
    if (p.plans.empty() || !(p.end_s() > 0)) continue;
    if (p.settled) continue;  // what was measured says more
    const double gain = 1 - p.plans.back().end_s / p.end_s();
    if (gain > most) most = gain, best = &p;
  }
  if (!best || most < 0.05) return {};
  const StepPicture::Plan& plan = best->plans.back();
  return Finding{
      j.took_s > 0 ? (best->end_s() - plan.end_s) * j.f.steps / j.took_s : 0,
      fmt::format("the exchange of a step ends after {} instead of {}, in {} calls instead of {}, by the timeline",
                  time_text(plan.end_s), time_text(best->end_s()), plan.groups, best->calls.size()),
      "Another grouping of the tensors would end the step's exchange earlier.",
      best->horovod && plan.setting.size() < 200
          ? plan.setting + ", or CRIMP_MERGE=auto, which finds it while the job runs. `crimp plan` has more."
          : "CRIMP_MERGE=auto under Horovod; other programs would have to merge their calls. `crimp plan` has more."};
}

Maybe saving(const Job& j) {
  double saving_s = 0, ranks = 0;
  for (const auto& rank : j.f.report["per_rank"]) ++ranks, saving_s += number_in(object_in(rank, "state"), "saving_s");
  saving_s /= std::max(1.0, ranks);
  if (!(j.took_s > 0 && saving_s > 0.1 * j.took_s)) return {};
  return Finding{std::min(1.0, saving_s / j.took_s),
                 fmt::format("{} of {} in calls", time_text(saving_s), time_text(j.took_s)),
                 "Calls wait for residuals to be saved (CRIMP_STATE_INTERVAL).",
                 "Save less often: a larger CRIMP_STATE_INTERVAL, or a faster disk for CRIMP_STATE_DIR."};
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
