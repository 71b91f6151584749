#include "plan_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/plain_text.hpp"
#include "quantities.hpp"

namespace crimp::tools {
namespace {

std::string risk_text(const std::optional<Risk>& risk) {
  if (!risk) return "not measured";
  if (risk->diverged) return "diverged";
  if (risk->points <= kChance) return "none seen";
  return fmt::format("{:.1f} points", risk->points);
}

std::string short_text(const std::string& merge, std::size_t groups) {
  return merge.starts_with("cuts=") ? fmt::format("{} groups", groups) : merge;
}

}  // namespace

void print(const PlanAnswer& a) {
  const ClusterProfile& profile = a.profile;
  std::uint64_t elements = 0;
  for (const TensorSize& tensor : a.step.tensors) elements += tensor.count;
  std::printf("%zu tensors, %.2f million elements, %.2f MB of gradients; --caller %s; %d ranks on %d nodes, ",
              a.step.tensors.size(), 1e-6 * static_cast<double>(elements),
              1e-6 * static_cast<double>(elements) * a.step.value_bytes, a.caller.c_str(), profile.ranks,
              profile.nodes);
  if (profile.measured)
    std::printf("as measured (%s%s)\n", a.from.c_str(),
                profile.mpi.empty() ? "" : plain_text(", " + profile.mpi).c_str());
  else
    std::printf("%s a node, %s a message, %s; codecs timed on this machine%s\n", rate_text(a.bits_per_s).c_str(),
                fmt::format("{:g} us", 1e6 * a.latency_s).c_str(),
                a.cores == 0 ? "a core for every thread"
                             : fmt::format("{} cores {}", a.cores, a.one_machine ? "for all ranks" : "a node").c_str(),
                a.bounds_only ? ", but taken for nothing" : "");
  if (a.traced_ranks > 1 && a.traced_ranks != profile.ranks)
    std::printf("The step is one of a job of %d ranks; all figures here are for %d.\n", a.traced_ranks, profile.ranks);
  if (a.step.compute_s > 0)
    std::printf("%.2f ms of computing, %s\n", 1e3 * a.step.compute_s,
                a.traced ? "gradients ready when the report has seen them"
                : a.step.overlaps
                    ? "gradients ready in the order last tensor first, in its last two thirds by their elements"
                    : "and the exchange behind it");
  else std::printf("Computing is not known (--compute): only the exchange is compared, and nothing can hide it.\n");
  const double plain = a.rows.front().step_s;
  double halves = 0;
  for (const Forecast& row : a.rows)
    if (row.codec.starts_with("fp16") && (halves == 0 || row.step_s < halves)) halves = row.step_s;
  std::printf("\n%-18s %-12s %-12s %9s %11s %9s %7s %7s  %-22s %s\n", "# codec", "algorithm", "merged", "step [ms]",
              "calls [ms]", "MB a rank", "x plain", "x fp16", "bound by", "accuracy lost");
  std::vector<const Forecast*> order;
  for (const Forecast& row : a.rows) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(), [](auto* x, auto* y) { return x->step_s < y->step_s; });
  for (const Forecast* row : order)
    std::printf("%-18s %-12s %-12s %9.2f %11.2f %9s %7.2f %7s  %-22s %s\n", short_codec(row->codec).c_str(),
                plain_text(row->algorithm).c_str(), short_text(row->merge, row->groups.cuts.size() + 1).c_str(),
                1e3 * row->step_s, 1e3 * row->exchange_s,
                std::isnan(row->sent_bytes) ? "-" : fmt::format("{:.2f}", 1e-6 * row->sent_bytes).c_str(),
                plain / row->step_s, halves > 0 ? fmt::format("{:.2f}", halves / row->step_s).c_str() : "-",
                name_of(row->bound), risk_text(risk_of(*row, a.rows)).c_str());
  for (const std::string& why : a.left_out) std::printf("# left out: %s\n", plain_text(why).c_str());
  std::printf(
      "\naccuracy lost: points against fp32 in the two trainings of docs/quality.md, seeds of which lie %.1f apart; another model may lose more.\n",
      kChance);
  if (a.bounds_only)
    std::printf(
        "No curve of a GPU has been measured: codecs are taken for nothing here, so these are bounds that no GPU goes below. A profile of a machine with one (--profile) says more.\n");
}

std::string verdict(const PlanAnswer& a) {
  const ClusterProfile& profile = a.profile;
  const Advice& v = a.advice;
  const bool of_step = a.step.compute_s > 0;
  const char* const what = of_step ? "step" : "exchange";
  std::string out;
  if (v.pays) {
    out = fmt::format("Take {}: {} {} of {:.2f} ms in place of {:.2f} ms, {:.2f} times as fast as plain MPI",
                      short_codec(v.taken.codec), of_step ? "a" : "an", what, 1e3 * v.taken.step_s,
                      1e3 * a.rows.front().step_s, v.gain);
    if (v.over_halves > 0 && !v.taken.codec.starts_with("fp16"))
      out += fmt::format(" and {:.2f} times as fast as 16 bits", v.over_halves);
    out += fmt::format(". It is then bound by {}. Accuracy lost where it was measured: {}.\n", name_of(v.taken.bound),
                       risk_text(v.risk));
    if (a.even_bits_per_s)
      out += fmt::format("On links of more than about {} it would not pay any more.\n", rate_text(*a.even_bits_per_s));
  } else {
    double best = 0;
    for (const Forecast& row : a.rows) best = std::max(best, a.rows.front().step_s / row.step_s);
    out = fmt::format("It will not pay here: plain MPI's {} takes {:.2f} ms, bound by {}, and ", what,
                      1e3 * a.rows.front().step_s, name_of(a.rows.front().bound));
    if (v.most_gain > 0 && v.most_gain < kLeastGain)
      out += fmt::format("an exchange that took no time at all would gain {:.1f} %.\n", 100 * (v.most_gain - 1));
    else if (best >= kLeastGain)
      out += fmt::format(
          "what is faster ({:.2f} times at most) loses more than {:g} points of accuracy, or was not measured (--max-loss).\n",
          best, a.most_loss);
    else out += fmt::format("no codec gains 5 % (the best: {:.1f} %).\n", 100 * (best - 1));
    if (a.even_bits_per_s)
      out += fmt::format("It would on links of less than about {}.\n", rate_text(*a.even_bits_per_s));
    else if (!profile.measured && !a.bounds_only && a.rows.size() > 1) out += "No rate of the link changes that.\n";
  }
  return out;
}

nlohmann::ordered_json json_of(const PlanAnswer& a, const std::string& said) {
  const ClusterProfile& profile = a.profile;
  std::uint64_t elements = 0;
  for (const TensorSize& tensor : a.step.tensors) elements += tensor.count;
  nlohmann::ordered_json out{{"plan", "forecast"},
                             {"tensors", a.step.tensors.size()},
                             {"elements", elements},
                             {"ranks", profile.ranks},
                             {"nodes", profile.nodes},
                             {"measured", profile.measured},
                             {"compute_ms", 1e3 * a.step.compute_s},
                             {"caller", a.caller}};
  if (!profile.measured) out["link_bits_per_s"] = a.bits_per_s, out["latency_us"] = 1e6 * a.latency_s;
  if (a.bounds_only) out["bounds_only"] = true;
  for (const Forecast& row : a.rows) {
    const auto risk = risk_of(row, a.rows);
    nlohmann::ordered_json one{{"codec", row.codec},           {"algorithm", row.algorithm},
                               {"merge", row.merge},           {"groups", row.groups.cuts.size() + 1},
                               {"step_ms", 1e3 * row.step_s},  {"exchange_ms", 1e3 * row.exchange_s},
                               {"sent_bytes", row.sent_bytes}, {"over_plain", a.rows.front().step_s / row.step_s},
                               {"bound", name_of(row.bound)},  {"calls", row.by_calls ? "measured" : "modelled"}};
    if (risk) one["points_lost"] = risk->points, one["diverged"] = risk->diverged;
    out["rows"].push_back(std::move(one));
  }
  const Advice& v = a.advice;
  out["advice"] = {{"pays", v.pays},         {"codec", v.taken.codec}, {"algorithm", v.taken.algorithm},
                   {"merge", v.taken.merge}, {"gain", v.gain},         {"step_ms", 1e3 * v.taken.step_s},
                   {"said", said},           {"line", v.line}};
  if (v.over_halves > 0) out["advice"]["gain_over_fp16"] = v.over_halves;
  if (v.risk) out["advice"]["points_lost"] = v.risk->points;
  if (a.even_bits_per_s) out["advice"]["even_bits_per_s"] = *a.even_bits_per_s;
  return out;
}

}  // namespace crimp::tools
