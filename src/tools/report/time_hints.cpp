#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/finding.hpp"

namespace crimp::tools {
namespace {

// The part of the time that compressed calls which do not block have: how long they are under way is in no figure.
double without_wire(const Job& j) {
  double time_s = 0;
  for (const auto& [_, sums] : j.f.algorithms)
    if (const auto found = sums.why.find("nonblocking"); found != sums.why.end())
      time_s += sums.total_s * found->second / std::max(1.0, sums.calls);
  return j.f.all.total_s > 0 ? time_s / j.f.all.total_s : 0;
}

// Of the ranks that have encoded calls; the others are on no network.
struct OnWire {
  double wire_s = 0;               // the least of them: the others wait there for a late one, which is no network's
  double total_s = 0, wait_s = 0;  // their means, of all their compressed calls
};

OnWire on_wire(const Job& j) {
  OnWire out;
  double ranks = 0;
  for (std::size_t r = 0; r < j.f.of_rank.size(); ++r) {
    const CallSums calls = encoded(j, r);
    if (calls.calls <= 0) continue;
    out.wire_s = ranks > 0 ? std::min(out.wire_s, calls.wire_s) : calls.wire_s;
    out.total_s += j.f.of_rank[r].total_s, out.wait_s += j.f.of_rank[r].wait_s.value_or(0);
    ++ranks;
  }
  out.total_s /= std::max(1.0, ranks), out.wait_s /= std::max(1.0, ranks);
  return out;
}

}  // namespace

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
  const CallSums calls = encoded(j);
  const OnWire ranks = on_wire(j);
  const double all_s = ranks.total_s + ranks.wait_s;
  const double share = all_s > 0 ? ranks.wire_s / all_s : 0;
  if (share < 0.5 || calls.ratio() >= 16) return {};
  const std::string codec = setting(j, "CRIMP_CODEC", "");
  const bool named = encoded_unknown(j).most.calls < 0.5 * calls.calls;
  const std::string stronger = !named || codec.starts_with("3lc:s=1.9") ? ""
                               : codec.starts_with("3lc")               ? "3lc:s=1.9"
                                                                        : "3lc";
  return Finding{
      share,
      fmt::format("{} of {} in compressed calls on the wire, at a ratio of {:.1f}", time_text(ranks.wire_s),
                  time_text(ranks.total_s), calls.ratio()),
      "The network bounds the calls.",
      !named
          ? "Name the tensors (docs/tensors.md): without names stronger codecs, which keep residuals, fall back to 16 bits."
      : setting(j, "CRIMP_CONTROL", "off") == "off"
          ? (stronger.empty() ? std::string("A stronger codec, as CRIMP_CODEC=topk:ratio=0.01")
                              : fmt::format("A stronger codec, as CRIMP_CODEC={}", stronger)) +
                " (docs/quality.md: what each costs in accuracy), or CRIMP_CONTROL=delay, which takes as much as is necessary."
          : "The ladder's last levels decide: CRIMP_LADDER can have stronger ones, CRIMP_DELAY_TARGET a smaller target."};
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

}  // namespace crimp::tools
