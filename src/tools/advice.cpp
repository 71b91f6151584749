#include "advice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codec/codec.hpp"

namespace crimp::tools {

std::string short_codec(const std::string& spec) {
  if (spec == "none") return spec;
  const std::size_t colon = spec.find(':');
  std::string text = spec;
  // One parameter after the other is left out where nothing changes by it.
  for (std::size_t at = colon; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at + 1), text.size());
    std::string less = text.substr(0, at) + text.substr(end);
    if (less.size() > colon && less[colon] == ',') less[colon] = ':';
    if (make_codec(less)->spec() == spec) text = less;
    else at = end;
  }
  return text;
}

std::optional<Risk> risk_of(const Forecast& row, const std::vector<Forecast>& all) {
  if (row.algorithm != "auto") return risk_of(row.codec, row.algorithm);
  std::optional<Risk> worst;
  for (const Forecast& other : all) {
    if (other.codec != row.codec || other.algorithm == "auto") continue;
    const auto one = risk_of(other.codec, other.algorithm);
    if (!one) return {};
    if (!worst || one->points > worst->points) worst = one;
  }
  return worst;
}

Advice advise(const std::vector<Forecast>& all, const StepShape& step, const AdviceQuery& query) {
  Advice out;
  const Forecast &plain = all.front(), *best = nullptr, *halves = nullptr;
  for (const Forecast& row : all) {
    if (row.algorithm != "auto") continue;
    const auto risk = risk_of(row, all);
    if (row.codec.starts_with("fp16") && (!halves || row.step_s < halves->step_s)) halves = &row;
    if (!risk || risk->diverged || risk->points > query.most_loss) continue;
    if (!best || row.step_s < best->step_s) best = &row;
  }
  // What is hardly faster than 16 bits is not worth more loss than theirs, where these pay.
  const auto pays = [&](const Forecast& row) { return plain.step_s >= kLeastGain * row.step_s; };
  if (best && halves && halves->step_s < kLeastGain * best->step_s && pays(*halves)) {
    const auto risk = risk_of(*halves, all);
    if (risk && risk->points <= query.most_loss) best = halves;
  }
  if (step.compute_s > 0) out.most_gain = plain.step_s / step.compute_s;
  out.pays = best && pays(*best);
  out.taken = out.pays ? *best : plain;
  out.gain = plain.step_s / out.taken.step_s;
  if (halves && out.pays) out.over_halves = halves->step_s / best->step_s;
  out.risk = risk_of(out.taken, all);
  if (!out.pays) {
    out.line = fmt::format("mpirun -np {} {}", query.ranks, query.program);
    return out;
  }
  std::string settings;
  if (query.threads > 1) settings += fmt::format("CRIMP_THREADS={} ", query.threads);
  if (!query.quality.empty()) settings += fmt::format("CRIMP_QUALITY={} ", query.quality);
  if (query.caller == Caller::horovod && out.taken.merge != "off") settings += "CRIMP_MERGE=auto ";
  out.line = fmt::format("{}crimp run -np {} --codec {} -- {}", settings, query.ranks, short_codec(out.taken.codec),
                         query.program);
  return out;
}

}  // namespace crimp::tools
