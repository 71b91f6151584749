#include "schedule/call_sequence.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "core/reserve.hpp"

namespace crimp {
namespace {

constexpr double kUnrelated = 1.5;  // standard deviations

}  // namespace

std::string CallSequence::prefix(const Series& series) const {
  return kKeyPrefix + std::to_string(series.id) + "." + std::to_string(series.generation) + ".";
}

// The other ranks do so, too.
void CallSequence::forget_residuals(const Series& series) const {
  insist([&] { forget_(prefix(series)); });
}

void CallSequence::gather(Series& series, const SumOverRanks& sum) {
  const std::uint64_t soon =
      series.calls + std::clamp<std::uint64_t>(series.period ? series.calls : series.calls / 4, 1, 4096);
  series.next = soon;
  const PeriodEvidence evidence(series.history, {periods_, series.backoff, series.adjacent}, sum);
  if (evidence.empty()) return;
  // What has not shown by now may never do so, and each search sends more than the one before.
  if (!series.period && series.calls >= kManyCalls)
    series.next = std::max(soon, series.calls + kWorthSearch * evidence.bytes() / bytes_of(signature_));
  // In each way that proves anything; a common multiple is a period in both.
  std::uint64_t period = 1;
  if (!series.period) std::fill(std::begin(series.proved), std::end(series.proved), false);
  bool proved = false, outdone = series.period && !evidence.find(series.period);
  for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
    const PeriodEvidence::Lag& fit = evidence.fitting(way);
    if (!fit.proves(way) || !evidence.even(way, fit.lag) || !evidence.covered(way, fit)) continue;
    proved = true;
    if (!series.period) series.proved[way] = true;
    period = std::lcm(period, std::uint64_t{fit.lag});
    if (series.period && !outdone && fit.lag > series.period) {
      const PeriodEvidence::Lag& now = *evidence.find(series.period);
      outdone =
          fit.lag % series.period == 0
              ? evidence.stands_out(way, series.period, fit.lag)
              : fit.unlike(way) + Evidence::kLikely * std::hypot(fit.error(way), now.error(way)) < now.unlike(way);
    }
  }
  // What was taken for even by chance. Twice, because one outlier makes a few pairs odd.
  bool even_still = true;
  for (std::size_t way = 0; way < Evidence::kWayCount; ++way)
    even_still = even_still && (!series.period || !series.proved[way] || evidence.even(way, series.period));
  series.uneven = even_still ? 0 : series.uneven + 1;
  outdone = outdone || series.uneven == 2;
  if (series.period) return outdone ? withdraw(series) : learn(series, series.period, sum);
  const bool linked = !proved && evidence.linked(sum);
  if ((!proved && !linked) || period > PeriodEvidence::kLongest) return;
  // Values that are alike in one way and of two kinds in the other are two tensors'.
  const PeriodEvidence::Lag* at = evidence.find(static_cast<std::uint32_t>(period));
  if (!at || at->of_two_kinds()) return;
  series.next = soon;
  learn(series, at->lag, sum);
  if (linked) series.tensors[0].known = series.tensors[0].linked = true;
}

// Looks at each tensor of a period by itself.
void CallSequence::learn(Series& series, std::uint32_t period, const SumOverRanks& sum) {
  const auto& calls = series.history;
  const auto ordinal_of = [&](std::size_t i) {
    const std::size_t back = calls.size() - i;  // calls from this one to the next
    return (series.phase + period * (back / period + 1) - back) % period;
  };
  if (!series.period) {
    series.phase = 0;
    series.good = 0;
    series.foreign = 0;
    insist([&] { series.tensors.assign(period, {}); });
  }
  std::vector<bool> moved;
  std::vector<Evidence> mine;
  std::vector<std::int64_t> numbers;
  insist([&] {
    std::vector<std::vector<Likeness>> found(period);
    moved.assign(period, false);
    for (std::size_t i = period; i < calls.size(); ++i) {
      const std::size_t t = ordinal_of(i);
      found[t].emplace_back(calls[i].sketch, calls[i - period].sketch);
      if (!same_buffers(calls[i], calls[i - period])) moved[t] = true;
    }
    mine.clear();
    for (const auto& of_tensor : found)
      for (const auto way : Evidence::kWays) mine.emplace_back(of_tensor, way);
    numbers.assign(mine.size() * Evidence::kNumbers + 3 * period, 0);
  });
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i].put(&numbers[i * Evidence::kNumbers]);
  // How often each end was of another kind.
  const auto ends_of = [&](std::size_t t) { return &numbers[mine.size() * Evidence::kNumbers + 3 * t]; };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::size_t t = ordinal_of(i);
    ends_of(t)[0] += calls[i].sketch.head();
    ends_of(t)[1] += calls[i].sketch.tail();
    ends_of(t)[2] += calls[i].sketch.usable();
  }
  sum(numbers);
  for (std::size_t t = 0; t < period; ++t) {
    Tensor& tensor = series.tensors[t];
    const Evidence* const here = &mine[t * Evidence::kWayCount];
    // Where its calls have passed unseen nothing new is known of it.
    const bool seen = !series.period || here[0].known() || here[1].known();
    if (seen) tensor.steady = !moved[t];
    // Once, because the residual is that of what lies between.
    if (!tensor.known) {
      tensor.head = ends_of(t)[0] && 2 * ends_of(t)[0] >= ends_of(t)[2];
      tensor.tail = ends_of(t)[1] && 2 * ends_of(t)[1] >= ends_of(t)[2];
    }
    for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
      const std::size_t i = t * Evidence::kWayCount + way;
      const bool proved = Evidence(&numbers[i * Evidence::kNumbers]).proves(Evidence::kLikely, way);
      tensor.known = tensor.known || proved;
      // What proves nothing doubts nothing. So few pairs as link a tensor say nothing yet of how its likeness varies.
      const bool many = here[way].known() && (period > 1 || calls.size() > PeriodEvidence::kMinMatches);
      if (seen)
        tensor.usual[way] = proved && many ? Tensor::Usual{here[way].mean(), here[way].spread()} : Tensor::Usual{};
    }
  }
  if (series.period) return;
  for (std::size_t i = calls.size() - period; i < calls.size(); ++i) series.tensors[ordinal_of(i)].last = calls[i];
  series.period = period;
}

bool CallSequence::doubtful(const Tensor& tensor, const SketchedCall& values) const {
  const Likeness to_last(values.sketch, tensor.last.sketch);
  const bool moved = tensor.steady && !same_buffers(values, tensor.last);
  if (!to_last.known) return moved && values.sketch.usable();
  bool unlike = false, far = false, measured = false, unrelated = true;
  for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
    const Likeness::Way& now = to_last.*Evidence::kWays[way];
    const auto& usual = tensor.usual[way];
    measured = measured || usual.mean > Tensor::Usual{}.mean;
    if (!now.known) continue;
    // Where gradients turn, the next one may be opposed.
    unrelated = unrelated && (way == 0 ? std::abs(now.likeness) : now.likeness) < kUnrelated * std::sqrt(now.variance);
    if (now.likeness >= usual.mean / 2) continue;
    unlike = true;
    far = far || now.likeness < usual.mean - Evidence::kLikely * std::hypot(usual.spread, std::sqrt(now.variance));
  }
  if (tensor.linked && !measured) far = unlike = unrelated;
  return moved ? !to_last.alike || unlike : !to_last.alike && far;
}

// How far the largest value may be from the last one's.
double CallSequence::proportion(const Tensor& tensor, const Likeness& to_last) {
  bool measured = false, any = false;
  for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
    const Likeness::Way& now = to_last.*Evidence::kWays[way];
    const auto& usual = tensor.usual[way];
    if (!now.known) continue;
    const bool says = usual.mean > 0;
    any = true;
    measured = measured || says;
    const double likeness = way == 0 && !says ? std::abs(now.likeness) : now.likeness;
    if (likeness >= (says ? usual.mean / 2 : kUnrelated * std::sqrt(now.variance))) return kProportion;
  }
  return measured ? kProportionUnlike : any ? kProportionUnrelated : kProportion;
}

CallSequence::Call CallSequence::begin(std::uint64_t count, Dtype type, const SketchedCall& values, bool ends) {
  // What can fail comes first, and leaves nothing.
  const std::uint64_t signature = CallSequence::signature(count, type);
  auto at = series_.find(signature);
  const bool made = at == series_.end(),
             known = !made && at->second.period && at->second.tensors[at->second.phase].known;
  Call call{known ? layout(at->second, count, ends) : Layout::unknown(count)};
  call.withdrawn = !made && at->second.withdrawn();
  call.ambiguous = !made && at->second.ambiguous();
  if (made) {
    Series fresh;
    fresh.history.emplace_back();
    at = series_.emplace(signature, std::move(fresh)).first;
  } else {
    at->second.history.emplace_back();  // room for record()
  }
  Series& series = at->second;
  ++now_;
  signature_before_ = std::exchange(signature_, signature);
  adjacent_before_ = series.adjacent;
  if (signature_before_ == signature) series.adjacent = true;
  made_ = made;
  if (made) {
    series.id = next_id_++;
    series.next = 2;
  }
  values_ = values;
  apart_ = false;
  largest_ = 0;
  outlier_ = false;
  alike_ = false;
  proportion_ = kProportion;
  bool signs = false;
  if (known) {
    const Tensor& tensor = series.tensors[series.phase];
    const Likeness to_last(values.sketch, tensor.last.sketch);
    alike_ = to_last.alike, signs = to_last.signs;
    if (!alike_) proportion_ = proportion(tensor, to_last);
    call.foreign = doubtful(tensor, values);
  }
  // A known tensor's gradient may be of one sign in a step, as that of a layer behind rectified features.
  call.apart = values.sketch.usable() && !values.sketch.gradient() && !(signs && values.sketch.one_sign());
  return call;
}

// Of the tensor whose turn it is. Its ends have no name: they are summed exactly.
std::shared_ptr<const Layout> CallSequence::layout(const Series& series, std::uint64_t count, bool ends) const {
  const Tensor& tensor = series.tensors[series.phase];
  const std::uint64_t head = ends && tensor.head ? Sample::kEnd : 0, tail = ends && tensor.tail ? Sample::kEnd : 0;
  std::string key = prefix(series) + std::to_string(series.phase);
  std::vector<Segment> segments;
  if (head) segments.push_back({"", 0, head});
  segments.push_back({std::move(key), head, count - head - tail});
  if (tail) segments.push_back({"", count - tail, tail});
  return Layout::make(Layout::Source::periodic, std::move(segments));
}

bool CallSequence::skip(std::uint64_t count, Dtype type) noexcept {
  const std::uint64_t signature = CallSequence::signature(count, type);
  const auto at = series_.find(signature);
  if (at == series_.end()) return false;
  Series& series = at->second;
  if (!series.period || !series.tensors[series.phase].known) return false;
  ++now_;
  if (std::exchange(signature_, signature) == signature) series.adjacent = true;
  series.used = now_;
  series.phase = (series.phase + 1) % series.period;
  series.unseen = (series.unseen + 1) % series.period;
  return true;
}

CallSequence::Proportion CallSequence::magnitude(double largest) {
  if (!std::isfinite(largest)) return Proportion::usual;
  largest_ = largest;
  const Series& series = series_.at(signature_);
  if (!series.period || !series.tensors[series.phase].known) return Proportion::usual;
  const Tensor& tensor = series.tensors[series.phase];
  const auto in_proportion = [&](double to) {
    return to == 0 || (largest <= proportion_ * to && largest * proportion_ >= to);
  };
  if (largest == 0 || in_proportion(tensor.largest) || (tensor.outlier > 0 && in_proportion(tensor.outlier)))
    return Proportion::usual;
  outlier_ = alike_;
  return alike_ ? Proportion::outlier : Proportion::foreign;
}

void CallSequence::end(Outcome outcome, const SumOverRanks& sum) {
  Series& series = series_.at(signature_);
  if (outcome != Outcome::tensor) series.history.pop_back();
  if (outcome == Outcome::failed) {
    --now_;
    series.adjacent = adjacent_before_;
    if (made_) {
      series_.erase(signature_);
      --next_id_;
    }
    signature_ = signature_before_;
    return;
  }
  series.used = now_;
  if (outcome == Outcome::apart) {
    if (made_) series_.erase(signature_);
    // The one before, which was the first of its kind, may have looked like a gradient.
    else if (!series.period && !std::exchange(series.apart, true)) forget_calls(series);
    return;
  }
  if (outcome == Outcome::foreign) {
    ++foreign_;
    series.foreign = (series.foreign << 1 | 1) & 0xffff;
    if (std::popcount(series.foreign) >= 4) return withdraw(series);
    if ((series.foreign & 3) == 3 && series.period > 1) find_turn(series, sum);
    return;
  }
  // Nobody has asked the other ranks, as where all left the call to MPI: it says nothing.
  const bool apart = apart_ || (values_.sketch.usable() && !values_.sketch.gradient());
  if (apart) values_.sketch = Sketch();
  if (apart && !series.period && !std::exchange(series.apart_here, true))
    for (SketchedCall& before : series.history) before.sketch = Sketch();
  if (series.unseen) {
    series.history.pop_back();
    place_unseen(series);
    insist([&] { series.history.emplace_back(); });
  }
  if (series.period) {
    Tensor& tensor = series.tensors[series.phase];
    if (!apart && (values_.sketch.usable() || !same_buffers(values_, tensor.last))) tensor.last = values_;
    tensor.outlier = outlier_ ? largest_ : 0;
    if (largest_ > 0 && !outlier_) tensor.largest = largest_;
    series.phase = (series.phase + 1) % series.period;
    series.foreign = series.foreign << 1 & 0xffff;
    if (++series.good % kForgive == 0) series.backoff = std::max(1u, series.backoff / 2);
  }
  record(series, values_);
  if (series.calls >= series.next) gather(series, sum);
  if (only_ends_) {
    const auto has_ends = [](const Tensor& t) { return t.head || t.tail || !t.known; };
    const bool none = series.period && std::none_of(series.tensors.begin(), series.tensors.end(), has_ends);
    if (none || (!series.period && series.calls >= kBriefly)) give_up(series);
  }
  if (kept_ > most_) make_room();
}

// After two foreign calls in a row: whose the second one was, if that is beyond doubt. A tensor's own call that was
// taken for another's, or a call that was left out, would make all that follow foreign.
void CallSequence::find_turn(Series& series, const SumOverRanks& sum) {
  constexpr std::size_t kNumbers = 2;
  std::vector<std::int64_t> numbers;
  insist([&] { numbers.assign(series.period * kNumbers, 0); });
  for (std::uint32_t t = 0; t < series.period; ++t) {
    const Likeness to_last(values_.sketch, series.tensors[t].last.sketch);
    for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
      const Likeness::Way& now = to_last.*Evidence::kWays[way];
      if (!now.known || !series.proved[way]) continue;
      numbers[t * kNumbers] += to_fixed(now.likeness);
      numbers[t * kNumbers + 1] += to_fixed(now.variance);
    }
  }
  sum(numbers);
  const auto likeness = [&](std::uint32_t t) { return from_fixed(numbers[t * kNumbers]); };
  const auto chance = [&](std::uint32_t t) { return std::sqrt(from_fixed(numbers[t * kNumbers + 1])); };
  std::uint32_t best = 0;
  for (std::uint32_t t = 1; t < series.period; ++t)
    if (likeness(t) > likeness(best)) best = t;
  if (likeness(best) <= Evidence::kCertain * chance(best)) return;
  for (std::uint32_t t = 0; t < series.period; ++t)
    if (t != best && likeness(best) - likeness(t) < Evidence::kLikely * std::hypot(chance(t), chance(best))) return;
  place_unseen(series);
  for (const std::uint32_t next = (best + 1) % series.period; series.phase != next;
       series.phase = (series.phase + 1) % series.period)
    place(series, series.tensors[series.phase]);
}

// Calls are compared by their places, so what passed unseen has one, too, but for whole turns of all tensors.
void CallSequence::place_unseen(Series& series) {
  for (; series.unseen; --series.unseen)
    place(series, series.tensors[(series.phase + series.period - series.unseen) % series.period]);
}

// A call of which nothing is known but whose it was.
void CallSequence::place(Series& series, const Tensor& whose) {
  insist([&] { series.history.push_back({{}, whose.last.send, whose.last.receive}); });
  record(series, SketchedCall(series.history.back()));
}

void CallSequence::record(Series& series, const SketchedCall& values) {
  series.history.back() = values;
  ++series.calls;
  ++kept_;
  const std::size_t most =
      series.period ? std::max<std::size_t>(2 * PeriodEvidence::kRecent, 3 * series.period) : PeriodEvidence::kKept;
  for (; series.history.size() > most; --kept_) series.history.pop_front();
}

void CallSequence::make_room() {
  // Of what is known less is enough.
  for (auto& [_, series] : series_) {
    const std::size_t enough = std::max<std::size_t>(kEnough, 3 * series.period);
    for (; series.period && series.history.size() > enough; --kept_) series.history.pop_front();
  }
  // What came once and not again.
  forget_unused(now_ - std::min<std::uint64_t>(now_, kMostSketches / 2),
                [](const Series& series) { return !series.period && series.calls <= 1; });
  const std::size_t room = kMostSketches - kMostSketches / 8;
  // Those that have had their chance.
  if (kept_ > room)
    forget_unused(middle_use(), [](const Series& series) { return !series.period && series.history.size() > kEnough; });
  if (kept_ > kMostSketchesEver) forget_unused(middle_use(), [](const Series&) { return true; });
  most_ = std::max(kMostSketches, std::min(kept_ + kept_ / 8, kMostSketchesEver));
}

// Of every second series the last use is before it.
std::uint64_t CallSequence::middle_use() const {
  std::vector<std::uint64_t> uses;
  insist([&] {
    uses.clear();
    for (const auto& [_, series] : series_) uses.push_back(series.used);
  });
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  return *middle;
}

template <class May>
void CallSequence::forget_unused(std::uint64_t since, May may) {
  std::erase_if(series_, [&](const auto& of) {
    const Series& series = of.second;
    if (series.used >= since || !may(series)) return false;
    if (series.period) {
      forget_residuals(series);
      for (const Tensor& tensor : series.tensors) forgotten_ += tensor.known;
    }
    kept_ -= series.history.size();
    return true;
  });
}

void CallSequence::withdraw(Series& series) {
  forget_residuals(series);
  ++withdrawn_;
  ++series.generation;
  series.period = series.phase = series.foreign = series.uneven = 0;
  series.backoff = std::min(16u, 2 * series.backoff);
  series.tensors.clear();
  forget_calls(series);
}

bool CallSequence::given_up(std::uint64_t count, Dtype type) const noexcept {
  const auto at = series_.find(signature(count, type));
  return at != series_.end() && at->second.given_up;
}

void CallSequence::give_up(Series& series) {
  if (series.period) forget_residuals(series);
  ++series.generation;
  series.period = series.phase = 0;
  series.tensors.clear();
  forget_calls(series);
  series.given_up = true;
}

void CallSequence::forget_calls(Series& series) {
  kept_ -= series.history.size();
  series.history.clear();
  series.calls = 0;
  series.unseen = 0;
  series.next = 2;
}

CallSequence::Count CallSequence::count() const {
  Count count{.foreign = foreign_, .withdrawn = withdrawn_, .forgotten = forgotten_};
  for (const auto& [signature, series] : series_) {
    count.tensors += static_cast<std::uint64_t>(
        std::count_if(series.tensors.begin(), series.tensors.end(), [](const Tensor& t) { return t.known; }));
    count.ambiguous += series.ambiguous();
  }
  return count;
}

}  // namespace crimp
