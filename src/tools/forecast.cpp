#include "forecast.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <unordered_map>

#include "codec/codec.hpp"
#include "collective/algorithms.hpp"
#include "collective/candidates.hpp"
#include "collective/one_shot.hpp"
#include "core/error.hpp"
#include "schedule/merge_plan.hpp"
#include "schedule/rules.hpp"

namespace crimp::tools {
namespace {

constexpr const char* kAuto = "auto";
constexpr double kHidden = 0.02;  // of the computing: an exchange that makes a step longer by less is no bound

// What travels in a call of so many elements, by the rank that sends.
double sent_bytes(const std::string& algorithm, double ranks, double nodes, double elements, double payload) {
  const double others = (ranks - 1) / ranks;
  if (algorithm == "mpi") return 2 * others * elements * payload;
  if (algorithm == "low_rank") return NAN;  // by the tensors' shapes
  if (algorithm == "allgather" || algorithm == "one_shot") return (ranks - 1) * elements * payload;
  if (algorithm == "hierarchical") return (nodes - 1) * elements * payload;  // the node's leader
  double sums = payload;
  if (algorithm == "homomorphic" || algorithm == "integer_sum") {
    sums += 0.125;
    for (double n = 1; n < ranks; n *= 2) sums += 0.125;
  }
  if (algorithm == "integer_sum") return 2 * others * elements * sums;
  return others * elements * (payload + sums);
}

Curve without_bytes(const Curve& curve) {
  Curve flat;
  if (curve.empty()) return flat;
  flat.add(0, curve.points().front().s);
  flat.add(1e9, curve.points().front().s);
  return flat;
}

Curve without_latency(const Curve& curve) {
  Curve less;
  for (const auto& point : curve.points()) less.add(point.bytes, std::max(0.0, point.s - curve.points().front().s));
  return less;
}

template <class Change>
NetworkModel changed(const NetworkModel& of, Change change) {
  return {of.ranks, change(of.allgather), change(of.alltoall), change(of.plain),
          of.step.empty() ? Curve() : change(of.step)};
}

template <class Change>
ClusterProfile changed(const ClusterProfile& of, Change change) {
  ClusterProfile out = of;
  out.network = changed(of.network, change);
  if (out.hierarchy) out.hierarchy->leaders = changed(of.hierarchy->leaders, change);
  for (auto& [_, codec] : out.codecs) codec.calls.clear();
  return out;
}

// Calls of one codec on a profile, with one algorithm or the fastest.
class Calls {
 public:
  Calls(const ClusterProfile& profile, const StepShape& step, const ForecastSettings& with, const std::string& codec,
        std::string algorithm)
      : profile_(profile), settings_(with.settings), value_bytes_(step.value_bytes), algorithm_(std::move(algorithm)) {
    if (codec == "none") return;
    codec_ = make_codec(codec);
    const auto at = profile.codecs.find(codec_->spec());
    if (at == profile.codecs.end()) throw Error(ErrorCode::argument_invalid, "the profile has no codec " + codec);
    of_ = &at->second;
    if (algorithm_ != kAuto || codec.starts_with("fp16")) return;
    for (const auto& [spec, other] : profile.codecs)
      if (spec.starts_with("fp16") && spec != codec_->spec())
        halves_ = std::make_unique<Calls>(profile, step, with, spec, kAuto);
  }

  double plain_s(std::uint64_t bytes) const {
    return profile_.network.plain.at(static_cast<double>(bytes) / 4 * value_bytes_);
  }
  // Of the bytes as float32, those that are summed exactly among them.
  double s(std::uint64_t bytes, std::uint64_t exact) const {
    return s(bytes, exact, [this](std::uint64_t compressed) { return encoded_s(compressed); });
  }
  // Likewise, carried as `chosen` carries it, which has another profile: what is fastest there may be slow here.
  double s_as(const Calls& chosen, std::uint64_t bytes, std::uint64_t exact) const {
    return s(bytes, exact, [&](std::uint64_t compressed) {
      const Calls& theirs = chosen.faster(compressed);
      const Calls& by = &theirs == &chosen ? *this : *halves_;
      return by.s_by(theirs.taken(compressed), compressed);
    });
  }
  double sent(std::uint64_t bytes, std::uint64_t exact) const {
    const double n = profile_.ranks, nodes = profile_.nodes;
    const auto plainly = [&](std::uint64_t of) {
      return sent_bytes("mpi", n, nodes, static_cast<double>(of) / 4, value_bytes_);
    };
    if (!codec_ || bytes / 4 < settings_.min_count) return plainly(bytes);
    const std::uint64_t compressed = bytes - exact;
    double all = exact ? plainly(exact) : 0;
    if (compressed == 0) return all;
    const Calls& by = faster(compressed);
    const std::string taken = by.taken(compressed);
    return all + sent_bytes(taken, n, nodes, static_cast<double>(compressed) / 4,
                            taken == "mpi" ? value_bytes_ : by.of_->cost.payload_bytes);
  }
  bool measured() const { return of_ && !of_->calls.empty(); }

 private:
  template <class Encoded>  // (bytes)
  double s(std::uint64_t bytes, std::uint64_t exact, Encoded encoded) const {
    if (bytes == 0) return 0;
    if (!codec_ || bytes / 4 < settings_.min_count) return plain_s(bytes);
    const std::uint64_t compressed = bytes - exact;
    return (compressed ? encoded(compressed) : 0) + (exact ? plain_s(exact) : 0);
  }
  // These, or those of 16 bits.
  const Calls& faster(std::uint64_t bytes) const {
    return halves_ && halves_->encoded_s(bytes) <= encoded_s(bytes) ? *halves_ : *this;
  }
  // Infinite: by this algorithm it is not known.
  double s_by(const std::string& algorithm, std::uint64_t bytes) const {
    if (algorithm == "mpi") return plain_s(bytes);
    for (const auto& [name, s] : each_s(bytes))
      if (name == algorithm) return s;
    return INFINITY;
  }
  // Seconds by algorithm.
  const std::vector<std::pair<std::string, double>>& each_s(std::uint64_t bytes) const {
    const auto [at, fresh] = known_.try_emplace(bytes);
    if (!fresh) return at->second;
    auto& out = at->second;
    if (measured()) {
      const Suitable among = suitable(*codec_, profile_.ranks, settings_.quality);
      for (const auto& [name, curve] : of_->calls)
        if (name == "hierarchical" ||
            std::any_of(among.begin(), among.end(), [&](auto* e) { return e->name == name; }) || among.count == 0)
          out.emplace_back(name, curve.at(static_cast<double>(bytes)));
      return out;
    }
    ChoiceQuery query{codec_.get(),      bytes / 4,
                      settings_.chunk,   bytes / 4 * static_cast<unsigned>(value_bytes_),
                      settings_.quality, settings_.radix};
    query.frame_bytes = frame_bytes(*codec_, *Layout::unknown(query.count), settings_.chunk);
    const HierarchyModel* const nodes = profile_.hierarchy ? &*profile_.hierarchy : nullptr;
    for (const Choice& c : candidates(profile_.network, nodes, of_->cost, query)) {
      const AlgorithmEntry& entry = entry_of(c.carriage.algorithm);
      if (!c.carriage.nodes && !entry.cost) continue;
      const std::string name = c.carriage.nodes ? "hierarchical" : entry.name;
      const auto same = std::find_if(out.begin(), out.end(), [&](const auto& o) { return o.first == name; });
      if (same == out.end()) out.emplace_back(name, c.predicted_s);
      else same->second = std::min(same->second, c.predicted_s);
    }
    return out;
  }
  double encoded_s(std::uint64_t bytes) const {
    double best = INFINITY;
    for (const auto& [name, s] : each_s(bytes))
      if (algorithm_ == kAuto || algorithm_ == name) best = std::min(best, s);
    if (algorithm_ != kAuto) return best;
    best = std::min(best, plain_s(bytes));
    return halves_ ? std::min(best, halves_->encoded_s(bytes)) : best;
  }
  std::string taken(std::uint64_t bytes) const {
    if (algorithm_ != kAuto) return algorithm_;
    std::string name = "mpi";
    double best = plain_s(bytes);
    for (const auto& [other, s] : each_s(bytes))
      if (s < best) best = s, name = other;
    return name;
  }

  const ClusterProfile& profile_;
  const Settings& settings_;
  int value_bytes_;
  std::string algorithm_;
  std::shared_ptr<const Codec> codec_;  // null: plain MPI
  const ClusterProfile::OfCodec* of_ = nullptr;
  std::unique_ptr<Calls> halves_;
  mutable std::unordered_map<std::uint64_t, std::vector<std::pair<std::string, double>>> known_;
};

Timeline timeline_of(const StepShape& step, const Rules& rules, const Calls& calls) {
  Timeline out;
  for (std::size_t i = 0; i < step.tensors.size(); ++i) {
    const TensorSize& tensor = step.tensors[i];
    out.ready_s.push_back(step.overlaps ? step.ready_s[i] : step.compute_s);
    out.bytes.push_back(4 * tensor.count);
    const int rule = rules.match(tensor.name, tensor.count);
    const bool exact = rule >= 0 && rules.all()[static_cast<std::size_t>(rule)].codecs.front() == "none";
    out.exact.push_back(exact ? 4 * tensor.count : 0);
  }
  out.mixed = [&calls](std::uint64_t bytes, std::uint64_t exact, std::uint8_t) {
    return CallTime{.wire_s = calls.s(bytes, exact)};
  };
  return out;
}

template <class Visit>  // (bytes, exact) of each group
void for_groups(const Timeline& step, const Grouping& groups, Visit visit) {
  std::uint64_t bytes = 0, exact = 0;
  auto cut = groups.cuts.begin();
  for (std::size_t i = 0; i < step.bytes.size(); ++i) {
    if (cut != groups.cuts.end() && *cut == i) {
      visit(bytes, exact);
      bytes = exact = 0;
      ++cut;
    }
    bytes += step.bytes[i];
    exact += step.exact_of(i);
  }
  visit(bytes, exact);
}

double exchange_s(const Timeline& step, const Grouping& groups, const Calls& calls) {
  double all = 0;
  for_groups(step, groups, [&](std::uint64_t bytes, std::uint64_t exact) { all += calls.s(bytes, exact); });
  return all;
}

// What the exchange would be without either, with every call carried as it is, says what it is made of.
Forecast::Bound bound_of(const ClusterProfile& profile, const StepShape& shape, const ForecastSettings& with,
                         const Timeline& step, const Calls& chosen, const Forecast& of) {
  if (shape.compute_s > 0 && of.step_s < (1 + kHidden) * shape.compute_s) return Forecast::Bound::computing;
  ClusterProfile codec_free = changed(profile, [](const Curve& curve) { return curve; });
  const ClusterProfile as_is = codec_free;
  for (auto& [_, codec] : codec_free.codecs) codec.cost = {.payload_bytes = codec.cost.payload_bytes};
  const auto on = [&](const ClusterProfile& other) {
    const Calls calls(other, shape, with, of.codec, of.algorithm == "mpi" ? kAuto : of.algorithm);
    double all = 0;
    for_groups(step, of.groups,
               [&](std::uint64_t bytes, std::uint64_t exact) { all += calls.s_as(chosen, bytes, exact); });
    return all;
  };
  const double all = on(as_is);
  if (!std::isfinite(all)) return Forecast::Bound::unknown;  // its calls were measured, and no model has them
  const double bytes = all - on(changed(profile, without_bytes)), latency = all - on(changed(profile, without_latency)),
               codec = all - on(codec_free);
  if (codec >= bytes && codec >= latency) return Forecast::Bound::codec;
  return bytes >= latency ? Forecast::Bound::bandwidth : Forecast::Bound::latency;
}

Grouping grouping_of(const Timeline& step, const std::string& merge) {
  if (merge == kAuto) return best_grouping(step);
  const auto groups = MergePlan(merge).groups(step.bytes);
  Grouping out;
  for (std::uint32_t i = 1; i < groups.size(); ++i)
    if (groups[i] != groups[i - 1]) out.cuts.push_back(i);
  return out;
}

}  // namespace

const char* name_of(Forecast::Bound bound) {
  switch (bound) {
    case Forecast::Bound::unknown: return "not known";
    case Forecast::Bound::computing: return "the model's computing";
    case Forecast::Bound::bandwidth: return "bandwidth";
    case Forecast::Bound::latency: return "latency";
    case Forecast::Bound::codec: return "encoding and decoding";
  }
  return "";
}

StepShape StepShape::of(const TensorList& list, double compute, bool overlap, int bytes_of_value) {
  StepShape out;
  out.compute_s = compute;
  out.overlaps = overlap;
  out.value_bytes = bytes_of_value;
  out.tensors.assign(list.tensors.rbegin(), list.tensors.rend());
  const auto all = static_cast<double>(list.elements());
  double so_far = 0;
  for (const TensorSize& tensor : out.tensors) {
    so_far += static_cast<double>(tensor.count);
    out.ready_s.push_back(compute / 3 * (1 + 2 * so_far / all));
  }
  return out;
}

Forecast forecast(const ClusterProfile& profile, const StepShape& shape, const ForecastSettings& with,
                  const std::string& codec, const std::string& algorithm, const std::string& merge) {
  const Calls calls(profile, shape, with, codec, algorithm == "mpi" ? kAuto : algorithm);
  const Rules rules(with.settings.rules);
  const Timeline step = timeline_of(shape, rules, calls);
  Forecast out;
  out.codec = codec;
  out.algorithm = algorithm;
  out.groups = grouping_of(step, merge);
  out.merge = merge != kAuto            ? merge
              : out.groups.cuts.empty() ? "all"
              : out.groups.cuts.size() + 1 == shape.tensors.size()
                  ? "off"
                  : fmt::format("cuts={}", fmt::join(out.groups.cuts, ","));
  out.step_s = std::max(shape.compute_s, step.end_s(out.groups));
  out.exchange_s = exchange_s(step, out.groups, calls);
  for_groups(step, out.groups,
             [&](std::uint64_t bytes, std::uint64_t exact) { out.sent_bytes += calls.sent(bytes, exact); });
  out.by_calls = codec == "none" ? profile.measured : calls.measured();
  out.bound = bound_of(profile, shape, with, step, calls, out);
  return out;
}

std::vector<Forecast> forecasts(const ClusterProfile& profile, const StepShape& shape, const ForecastSettings& with,
                                std::vector<std::string>* left_out) {
  std::vector<Forecast> out;
  const auto best_of = [&](const std::string& codec, const std::string& algorithm) {
    std::optional<Forecast> best;
    for (const std::string& merge : with.merge) {
      if (merge == kAuto && shape.tensors.size() > kMostSearched) continue;
      Forecast one = forecast(profile, shape, with, codec, algorithm, merge);
      if (!best || one.step_s < best->step_s - 1e-12 ||
          (one.step_s <= best->step_s + 1e-12 && one.groups.cuts.size() < best->groups.cuts.size()))
        best = std::move(one);
    }
    if (best && std::isfinite(best->step_s)) out.push_back(std::move(*best));
  };
  best_of("none", "mpi");
  for (const auto& [spec, of] : profile.codecs) {
    const auto codec = make_codec(spec);
    std::vector<std::string> names;
    if (!of.calls.empty()) {
      for (const auto& [name, _] : of.calls) names.push_back(name);
    } else {
      for (const AlgorithmEntry* entry : suitable(*codec, profile.ranks, with.settings.quality))
        names.emplace_back(entry->name);
      if (profile.hierarchy && entry_of(Algorithm::hierarchical).why_unsupported(*codec, profile.ranks).empty())
        names.emplace_back("hierarchical");
    }
    if (names.empty()) {
      left_out->push_back(spec + ": no algorithm that runs it has a cost function; a measured profile has its calls");
      continue;
    }
    for (const std::string& name : names) best_of(spec, name);
    best_of(spec, kAuto);
  }
  return out;
}

}  // namespace crimp::tools
