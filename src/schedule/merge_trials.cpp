#include "schedule/merge_trials.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/merge_plan.hpp"

namespace crimp {
namespace {

constexpr std::size_t kSamples = 32;  // of calls of a size, the last ones

bool searchable(const StepTrace& seen) { return seen.steps > 0 && seen.calls[0].points().size() > 1; }

}  // namespace

double MergeTrials::Candidate::median_s() const { return median(steps_s); }

MergeTrials::MergeTrials(std::vector<std::uint64_t> tensor_bytes, std::vector<bool> may_begin, std::uint8_t codecs)
    : codecs_(codecs), tensors_(static_cast<std::uint32_t>(tensor_bytes.size())) {
  for (std::size_t i = 0; i < tensor_bytes.size(); ++i) {
    if (i == 0 || may_begin[i]) {
      unit_begin_.push_back(static_cast<std::uint32_t>(i));
      unit_bytes_.push_back(0);
    }
    unit_bytes_.back() += tensor_bytes[i];
  }
  while (unit_begin_.size() > kMostUnits) {
    std::size_t kept = 0;
    for (std::size_t u = 0; u < unit_begin_.size(); u += 2, ++kept) {
      unit_begin_[kept] = unit_begin_[u];
      unit_bytes_[kept] = unit_bytes_[u] + (u + 1 < unit_bytes_.size() ? unit_bytes_[u + 1] : 0);
    }
    unit_begin_.resize(kept), unit_bytes_.resize(kept);
  }
  begin(nullptr);
}

void MergeTrials::begin(const Plan* until_now) {
  if (until_now) before_ = trace();
  candidates_.clear();
  current_ = 0;
  round_ = repeats_ = shifts_ = 0;
  watching_ = last_ = false;
  turn_s_.clear();
  in_turn_ = 0;
  calls_.clear();
  of_step_.clear();
  without_s_ = 0;
  windows_.reset();
  searched_ = false;
  ready_s_.assign(unit_bytes_.size(), {});
  searched_steps_ = 0;
  ++searches_;
  propose({}, "no plan");
  const auto cuts_of = [&](const char* text) {
    const auto groups = MergePlan(text).groups(unit_bytes_);
    Cuts cuts;
    for (std::size_t u = 1; u < groups.size(); ++u)
      if (groups[u] != groups[u - 1]) cuts.push_back(static_cast<std::uint32_t>(u));
    return cuts;
  };
  for (std::uint8_t codec = 0; codec < codecs_; ++codec) {
    const auto all_with = [&](Cuts at) {
      const std::size_t groups = at.size() + 1;
      return Plan{true, of_units({std::move(at), std::vector(codec ? groups : 0, codec)})};
    };
    propose(all_with({}), codec ? "all in one, another codec" : "all in one");
    propose(all_with(cuts_of("y=2")), codec ? "y=2, another codec" : "y=2");
    if (codec) continue;
    propose(all_with(cuts_of("bytes=32M")), "bytes=32M");
    propose(all_with(cuts_of("bytes=8M")), "bytes=8M");
  }
  if (until_now) propose(*until_now, "the plan until now");
}

void MergeTrials::reuse(Plan plan, double step_s) {
  candidates_.clear();
  searches_ = 0;
  chosen_ = std::move(plan);
  reference_s_ = step_s;
  watching_ = true;
}

const MergeTrials::Plan& MergeTrials::plan() const { return watching_ ? chosen_ : candidates_[current_].plan; }

Grouping MergeTrials::of_units(Grouping of) const {
  for (auto& cut : of.cuts) cut = unit_begin_[cut];
  return of;
}

// Under the plan of this turn; nothing where groups of so many bytes have different codecs, or there is no such group.
std::optional<std::uint8_t> MergeTrials::codec_of_call(std::uint64_t bytes) const {
  const Grouping& groups = plan().groups;
  if (groups.codecs.empty()) return std::uint8_t{0};
  std::optional<std::uint8_t> codec;
  std::size_t unit = 0;
  for (std::size_t g = 0; g < groups.codecs.size(); ++g) {
    std::uint64_t of_group = 0;
    for (; unit < unit_begin_.size() && (g == groups.cuts.size() || unit_begin_[unit] < groups.cuts[g]); ++unit)
      of_group += unit_bytes_[unit];
    if (of_group != bytes) continue;
    if (codec && *codec != groups.codecs[g]) return {};
    codec = groups.codecs[g];
  }
  return codec;
}

void MergeTrials::propose(Plan plan, const char* origin) {
  for (const Candidate& known : candidates_)
    if (known.plan == plan) return;
  candidates_.push_back({std::move(plan), origin, {}});
}

void MergeTrials::called(std::uint64_t bytes, double s) {
  if (watching_ || bytes == 0) return;
  const auto codec = codec_of_call(bytes);
  if (!codec) return;
  of_step_.push_back({*codec, {static_cast<double>(bytes), s}});
}

void MergeTrials::stepped(double s, std::span<const double> ready_s, bool disturbed) {
  ++in_turn_;
  if (!watching_) ++searched_steps_;
  const auto calls = std::exchange(of_step_, {});
  if (!disturbed)
    for (const auto& [codec, point] : calls) {
      auto& of_size = calls_[{codec, static_cast<int>(2 * std::log2(point.bytes))}];
      if (of_size.size() == kSamples) of_size.erase(of_size.begin());
      of_size.push_back(point);
    }
  if (in_turn_ == 1) return;
  if (!disturbed) turn_s_.push_back(s);
  // When tensors are ready no call of theirs decides.
  if (!wants_ready()) return;
  for (std::size_t u = 0; u < unit_begin_.size(); ++u) {
    const std::size_t end = u + 1 < unit_begin_.size() ? unit_begin_[u + 1] : ready_s.size();
    double last = -1;
    for (std::size_t i = unit_begin_[u]; i < end; ++i) last = std::max(last, ready_s[i]);
    if (last >= 0) ready_s_[u].push_back(last);
  }
}

StepTrace MergeTrials::trace() const {
  StepTrace now = measured();
  return searchable(now) || before_.steps == 0 ? now : before_;
}

StepTrace MergeTrials::measured() const {
  StepTrace out;
  for (std::size_t u = 0; u < unit_begin_.size(); ++u) {
    const std::uint32_t end = u + 1 < unit_begin_.size() ? unit_begin_[u + 1] : tensors_;
    out.units.push_back({end - unit_begin_[u], unit_bytes_[u], median(ready_s_[u])});
    out.steps = std::max<std::uint64_t>(out.steps, ready_s_[u].size());
  }
  for (std::uint8_t codec = 0; codec < codecs_; ++codec) {
    std::vector<std::vector<Curve::Point>> calls;
    for (const auto& [key, of] : calls_)
      if (key.first == codec) calls.push_back(of);
    out.calls.push_back(curve_of(calls));
  }
  if (!candidates_.empty()) out.step_s = candidates_.front().median_s();
  return out;
}

void MergeTrials::propose_searched() {
  const StepTrace seen = measured();
  if (!searchable(seen)) return;
  searched_ = true;
  const auto searched = [&](double extra_s) { return Plan{true, of_units(best_grouping(seen.timeline(extra_s)))}; };
  propose(searched(0), "the timeline's optimum");
  // Calls cost the rest of the machine more than the time that they are seen to take.
  const double least = seen.calls[0].points().front().s;
  propose(searched(least), "the timeline's optimum, calls dearer");
  propose(searched(3 * least), "the timeline's optimum, calls much dearer");
}

bool MergeTrials::next() {
  const std::vector<double> turn = std::exchange(turn_s_, {});
  in_turn_ = 0;
  if (watching_) {
    if (turn.empty()) return false;
    if (reference_s_ == 0) return settle(median(turn));
    if (watch(median(turn))) begin(&chosen_);
    return false;
  }
  if (turn.empty() && ++repeats_ < kRepeats) return false;  // once more
  repeats_ = 0;
  auto& steps = candidates_[current_].steps_s;
  steps.insert(steps.end(), turn.begin(), turn.end());
  const auto on = [&] {
    while (current_ < candidates_.size() && candidates_[current_].out) ++current_;
    return current_ < candidates_.size();
  };
  ++current_;
  if (on()) return false;
  const double best = leave_out();
  // Turns may all have been of steps in which something else was learnt, as calls of a new size are tried for as many
  // as there are such: they come again.
  const bool unknown =
      std::any_of(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.steps_s.empty(); });
  const int rounds = last_ ? kLastRounds : unknown ? 2 * kRounds : kRounds;
  if (++round_ >= rounds || !std::isfinite(best)) {
    if (last_ || !begin_last_rounds(best)) {
      choose();
      return true;
    }
  } else if (!last_ && (round_ <= 2 || !searched_)) propose_searched();
  current_ = 0;
  on();
  return false;
}

// Returns the best one's time, infinity: nothing is measured.
double MergeTrials::leave_out() {
  double best = INFINITY;
  for (const Candidate& c : candidates_)
    if (!c.steps_s.empty()) best = std::min(best, c.median_s());
  if (!last_)
    for (Candidate& c : candidates_)
      c.out = !c.steps_s.empty() && c.median_s() > (round_ < 2 ? kOutAtFirst : kOut) * best;
  return best;
}

// False: there is nothing to decide between.
bool MergeTrials::begin_last_rounds(double best_s) {
  std::vector<Candidate*> near;
  for (Candidate& c : candidates_) {
    if (!c.out && !c.steps_s.empty() && c.median_s() <= kNear * best_s) near.push_back(&c);
    if (&c != &candidates_.front()) c.out = true;  // no plan stays where it was in
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const Candidate* a, const Candidate* b) { return a->median_s() < b->median_s(); });
  if (near.size() > kLast) near.resize(kLast);
  for (Candidate* c : near) c->out = false;
  round_ = 0;
  last_ = std::count_if(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return !c.out; }) > 1;
  return last_;
}

void MergeTrials::choose() {
  const Candidate& none = candidates_.front();
  double least = none.steps_s.empty() ? INFINITY : none.median_s() * (1 - kGain);
  chosen_ = none.plan;
  for (const Candidate& c : candidates_) {
    if (c.out || c.steps_s.empty() || c.median_s() >= least) continue;
    least = c.median_s();
    chosen_ = c.plan;
  }
  reference_s_ = 0;
  without_s_ = none.median_s();
  watching_ = true;
}

// The first window under the chosen plan. It was the least of several medians of a few steps, which may be luck.
bool MergeTrials::settle(double median_s) {
  if (const auto doubted = std::exchange(doubted_, {})) {
    const bool gains = doubted->second < median_s * (1 - kGain);
    windows_ = {doubted->second, median_s};
    if (gains) chosen_ = doubted->first;
    reference_s_ = gains ? doubted->second : median_s;
    return !gains;
  }
  if (chosen_.holds && without_s_ > 0 && median_s > without_s_ * (1 - kGain)) {
    doubted_.emplace(std::exchange(chosen_, {}), median_s);
    return false;
  }
  reference_s_ = median_s;
  return false;
}

// Whether the search begins again.
bool MergeTrials::watch(double median_s) {
  const bool shifted = std::abs(median_s - reference_s_) > kShift * reference_s_;
  shifts_ = shifted ? shifts_ + 1 : 0;
  return shifts_ == 2;
}

}  // namespace crimp
