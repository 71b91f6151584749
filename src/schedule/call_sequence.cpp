#include "schedule/call_sequence.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/reserve.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kRecent = 64;                          // comparisons that tell lags apart
constexpr std::uint64_t kFewest = 2;                           // comparisons of a lag that may outdo another
constexpr double kCertain = 6, kLikely = 4, kUnrelated = 1.5;  // standard deviations
constexpr double kOdd = 2.5;  // a call is an odd one where it is so much less than half as alike as the mean of all
constexpr double kLeast =
    0.1;  // mean likeness below which calls now and then alike, of tensors in a random order, look like noise
constexpr double kSure = 0.8,
                 kMostly = 0.5;  // mean likeness of nearly the same values again; of what tensors hardly have in common
constexpr double kTwoKinds = 0.15;  // common variance of pairs of two kinds, whatever else is alike in them
constexpr double kFixed =
    0x1p32;  // evidence is added as whole numbers, so that every rank has the same sums in any order
constexpr Likeness::Way Likeness::*kWays[] = {&Likeness::direction, &Likeness::magnitudes};
// Common variance, in squares of the mean, that one tensor's own changes may have. Directions turn together as the
// optimizer moves.
constexpr double kUneven[] = {0.4, 0.05};

std::int64_t fixed(double x) { return std::llround(x * kFixed); }
double real(std::int64_t x) { return static_cast<double>(x) / kFixed; }

// Sums of evidence over comparisons, and over ranks after an exchange.
struct Evidence {
  double likeness = 0, squares = 0, variance = 0, known = 0, odd = 0, both = 0, steps = 0;
  static constexpr std::size_t kNumbers = 7;

  Evidence() = default;
  Evidence(const std::vector<Likeness>& all, Likeness::Way Likeness::*way) {
    const Likeness::Way* before = nullptr;
    for (const Likeness& l : all) {
      if (!(l.*way).known) continue;
      if (before) {
        both += ((l.*way).halves[0] - before->halves[0]) * ((l.*way).halves[1] - before->halves[1]) / 2;
        steps += 1;
      }
      before = &(l.*way);
      likeness += (l.*way).likeness;
      squares += (l.*way).likeness * (l.*way).likeness;
      variance += (l.*way).variance;
      known += 1;
    }
    for (const Likeness& l : all)
      odd += (l.*way).known && (l.*way).likeness < mean() / 2 - kOdd * std::sqrt((l.*way).variance);
  }
  explicit Evidence(const std::int64_t* from)
      : likeness(real(from[0])), squares(real(from[1])), variance(real(from[2])), known(real(from[3])),
        odd(real(from[4])), both(real(from[5])), steps(real(from[6])) {}
  void put(std::int64_t* to) const {
    const double all[] = {likeness, squares, variance, known, odd, both, steps};
    std::transform(std::begin(all), std::end(all), to, fixed);
  }

  double mean() const { return known > 0 ? likeness / known : 0; }
  double spread() const { return known > 0 ? std::sqrt(std::max(0.0, squares / known - mean() * mean())) : 0; }
  // The variance that both halves of the sketches have in common: 0 where what makes pairs more or less alike is
  // chance, which is each half's own. From one pair to the next, because a training changes slowly.
  double common() const { return steps > 0 ? both / steps : 0; }
  double uneven() const { return mean() > 0 ? common() / (mean() * mean()) : 0; }
  // Alike beyond chance, and not only now and then, as the calls of several tensors in a random order are: of k tensors
  // with nothing in common the common variance is k - 1 squares of the mean.
  bool proves(double deviations, double uneven) const {
    return known > 0 && mean() >= kLeast && likeness >= deviations * std::sqrt(variance) && odd <= known / 50 &&
           this->uneven() <= uneven + 1e-9;
  }
};

bool same_buffers(const CallSequence::Values& a, const CallSequence::Values& b) {
  return a.send == b.send && a.receive == b.receive;
}

}  // namespace

struct CallSequence::Lag {
  std::uint32_t lag;
  std::uint64_t comparisons, wanted, used;
  Evidence all[kWayCount];
  double moved;
  double unlike(std::size_t way) const { return 1 - all[way].mean(); }
  double error(std::size_t way) const { return all[way].spread() / std::sqrt(static_cast<double>(used)); }
  bool proves(std::size_t way) const { return comparisons >= wanted && all[way].proves(kCertain, kUneven[way]); }
};

std::string CallSequence::prefix(const Series& series) const {
  return kKeyPrefix + std::to_string(series.id) + "." + std::to_string(series.generation) + ".";
}

// Evidence of every lag that has enough calls to be compared.
std::vector<CallSequence::Lag> CallSequence::lags(const Series& series, const SumOverRanks& sum) const {
  std::vector<Lag> all;
  std::vector<std::int64_t> numbers;
  constexpr std::size_t kNumbers = kWayCount * Evidence::kNumbers + 1;
  insist([&] {  // the other ranks come to the sum
    all = lags_here(series);
    numbers.assign(all.size() * kNumbers, 0);
  });
  if (all.empty()) return all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t way = 0; way < kWayCount; ++way)
      all[i].all[way].put(&numbers[i * kNumbers + way * Evidence::kNumbers]);
    numbers[(i + 1) * kNumbers - 1] = fixed(all[i].moved);
  }
  sum(numbers);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t way = 0; way < kWayCount; ++way)
      all[i].all[way] = Evidence(&numbers[i * kNumbers + way * Evidence::kNumbers]);
    all[i].moved = real(numbers[(i + 1) * kNumbers - 1]);
  }
  if (std::any_of(all.begin(), all.end(), [](const Lag& l) { return l.moved == 0 && l.comparisons >= 4; }))
    std::erase_if(all, [](const Lag& l) { return l.moved > 0; });
  return all;
}

// This rank's.
std::vector<CallSequence::Lag> CallSequence::lags_here(const Series& series) const {
  const auto& calls = series.history;
  std::vector<Lag> all;
  for (std::uint32_t lag = 1; lag < calls.size() && lag <= kLongestPeriod; ++lag) {
    const std::uint64_t comparisons = calls.size() - lag;
    if (comparisons < kFewest) break;
    const std::uint64_t used = std::min(comparisons, kRecent);
    std::vector<Likeness> found;
    double moved = 0;
    for (std::size_t i = calls.size() - used; i < calls.size(); ++i) {
      found.emplace_back(calls[i].sketch, calls[i - lag].sketch);
      moved += !same_buffers(calls[i], calls[i - lag]);
    }
    all.push_back({lag,
                   comparisons,
                   series.backoff * std::max<std::uint64_t>((periods_ - 1) * lag, kMinMatches),
                   used,
                   {},
                   moved});
    for (std::size_t way = 0; way < kWayCount; ++way) all.back().all[way] = Evidence(found, kWays[way]);
  }
  return all;
}

void CallSequence::gather(Series& series, const SumOverRanks& sum) {
  series.next = series.calls + std::clamp<std::uint64_t>(series.period ? series.calls : series.calls / 4, 1, 4096);
  const auto all = lags(series, sum);
  if (all.empty()) return;
  // In each way that proves anything; a common multiple is a period in both.
  std::uint64_t period = 1;
  if (!series.period) std::fill(std::begin(series.proved), std::end(series.proved), false);
  bool proved = false, outdone = series.period && find(all, series.period) == all.end();
  for (std::size_t way = 0; way < kWayCount; ++way) {
    const Lag& fit = fitting(all, way);
    if (!fit.proves(way) || !even(all, way, fit.lag) || !covered(all, way, fit, series)) continue;
    proved = true;
    if (!series.period) series.proved[way] = true;
    period = std::lcm(period, std::uint64_t{fit.lag});
    if (series.period && !outdone && fit.lag > series.period) {
      const Lag& now = *find(all, series.period);
      outdone = fit.lag % series.period == 0
                    ? stands_out(all, way, series.period, fit.lag)
                    : fit.unlike(way) + kLikely * std::hypot(fit.error(way), now.error(way)) < now.unlike(way);
    }
  }
  // What was taken for even by chance. Twice, because one outlier makes a few pairs odd.
  bool even_still = true;
  for (std::size_t way = 0; way < kWayCount; ++way)
    even_still = even_still && (!series.period || !series.proved[way] || even(all, way, series.period));
  series.uneven = even_still ? 0 : series.uneven + 1;
  outdone = outdone || series.uneven == 2;
  if (series.period) return outdone ? withdraw(series) : learn(series, series.period, sum);
  const bool linked = !proved && find(all, 1) != all.end() && linked_by_direction(series, all, sum);
  if ((!proved && !linked) || period > kLongestPeriod) return;
  // Values that are alike in one way and of two kinds in the other are two tensors'.
  const auto at = find(all, static_cast<std::uint32_t>(period));
  if (at == all.end() ||
      std::any_of(std::begin(at->all), std::end(at->all), [](const Evidence& e) { return e.common() > kTwoKinds; }))
    return;
  learn(series, at->lag, sum);
  if (linked) series.tensors[0].known = series.tensors[0].linked = true;
}

// Whether the few calls there are hang together, each like another in its direction beyond all chance: signs of two
// tensors have nothing to do with each other, whatever their magnitudes have in common. Where a training begins its
// gradients turn too fast for pairs to be evenly alike, but not from one to the next.
bool CallSequence::linked_by_direction(const Series& series, const std::vector<Lag>& all,
                                       const SumOverRanks& sum) const {
  const auto& calls = series.history;
  const std::size_t n = calls.size();
  if (n > kFewCalls || n - 1 < series.backoff * std::max(periods_ - 1, kFewMatches)) return false;
  constexpr std::size_t kNumbers = 3;
  std::vector<std::int64_t> numbers;
  std::vector<bool> reached;
  std::vector<std::size_t> front;
  insist([&] { numbers.assign(n * n * kNumbers, 0), reached.resize(n), front.reserve(n); });
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Likeness likeness(calls[i].sketch, calls[j].sketch);
      if (!likeness.direction.known) continue;
      std::int64_t* to = &numbers[(i * n + j) * kNumbers];
      to[0] = fixed(likeness.direction.likeness), to[1] = fixed(likeness.direction.variance), to[2] = fixed(1);
    }
  sum(numbers);
  front.push_back(0);
  reached[0] = true;
  while (!front.empty()) {
    const std::size_t at = front.back();
    front.pop_back();
    for (std::size_t other = 0; other < n; ++other) {
      const std::int64_t* pair = &numbers[(std::max(at, other) * n + std::min(at, other)) * kNumbers];
      if (reached[other] || pair[2] == 0 || real(pair[0]) < kLeast * real(pair[2]) ||
          real(pair[0]) < kLikely * std::sqrt(real(pair[1])))
        continue;
      reached[other] = true;
      front.push_back(other);
    }
  }
  if (!std::all_of(reached.begin(), reached.end(), [](bool r) { return r; })) return false;
  // At no other distance more alike in either way; in magnitudes, where these say anything, evenly so, and not opposed.
  for (std::size_t way = 0; way < kWayCount; ++way) {
    const Evidence& next = all.front().all[way];
    if (next.known == 0 || (way > 0 && std::abs(next.mean()) < kLeast)) continue;
    if (next.mean() < kLeast || fitting(all, way).lag != 1 || (way > 0 && !even(all, way, 1))) return false;
  }
  return true;
}

std::vector<CallSequence::Lag>::const_iterator CallSequence::find(const std::vector<Lag>& all, std::uint32_t lag) {
  const auto at =
      std::lower_bound(all.begin(), all.end(), lag, [](const Lag& l, std::uint32_t of) { return l.lag < of; });
  return at != all.end() && at->lag == lag ? at : all.end();
}

// Whether pairs at all multiples of the lag are evenly alike. In a random order those at the shortest ones may be pairs
// of different tensors only.
bool CallSequence::even(const std::vector<Lag>& all, std::size_t way, std::uint32_t lag) {
  double common = 0, squares = 0;
  for (const Lag& l : all) {
    if (l.lag % lag != 0 || l.lag > 16 * lag) continue;
    common += static_cast<double>(l.used) * l.all[way].common();
    squares += static_cast<double>(l.used) * l.all[way].mean() * l.all[way].mean();
  }
  return common <= kUneven[way] * squares + 1e-9;
}

// Magnitudes that are alike in part only need more pairs, to be told from those of tensors that have something in
// common: where calls of this count follow each other directly, as pieces of one gradient do, at this lag alone.
bool CallSequence::covered(const std::vector<Lag>& all, std::size_t way, const Lag& fit, const Series& series) {
  const double mean = fit.all[way].mean();
  if (way == 0 || mean > kSure) return true;
  double pairs = static_cast<double>(fit.comparisons);
  if (!series.adjacent || mean > kMostly) {
    pairs = 0;
    for (const Lag& l : all)
      if (l.lag % fit.lag == 0 && l.lag <= 16 * fit.lag) pairs += static_cast<double>(l.used);
  }
  return pairs >= 3 * series.backoff / (mean * mean);
}

// The shortest lag that no other one outdoes.
const CallSequence::Lag& CallSequence::fitting(const std::vector<Lag>& all, std::size_t way) {
  const Lag& best = *std::min_element(all.begin(), all.end(),
                                      [&](const Lag& a, const Lag& b) { return a.unlike(way) < b.unlike(way); });
  const Lag& fit = *std::find_if(all.begin(), all.end(), [&](const Lag& l) {
    return l.unlike(way) <= best.unlike(way) + 2 * std::hypot(l.error(way), best.error(way)) + 1e-6;
  });
  // Of tensors that resemble each other, such as layers of one input, every lag is nearly as good; over all its
  // multiples the true one still stands out.
  for (const Lag& l : all)
    if (l.lag > fit.lag && l.lag % fit.lag == 0 && stands_out(all, way, fit.lag, l.lag)) return l;
  return fit;
}

// Whether multiples of `of` are more alike than the multiples of `lag` beside them.
bool CallSequence::stands_out(const std::vector<Lag>& all, std::size_t way, std::uint32_t lag, std::uint32_t of) {
  double sum = 0, squares = 0, errors = 0, n = 0;
  for (std::uint32_t l = of; l <= 16 * of && l <= all.back().lag; l += of) {
    const auto at = find(all, l), before = find(all, l - lag), behind = find(all, l + lag);
    if (at == all.end() || before == all.end() || behind == all.end()) continue;
    const double gain = at->all[way].mean() - (before->all[way].mean() + behind->all[way].mean()) / 2;
    sum += gain, squares += gain * gain, errors += at->error(way) * at->error(way), n += 1;
  }
  if (n < 4) return false;
  const double mean = sum / n, seen = std::max(0.0, squares / n - mean * mean) / (n - 1), expected = errors / n / n;
  return mean > kLikely * std::sqrt(std::max(seen, expected));
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
      for (const auto way : kWays) mine.emplace_back(of_tensor, way);
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
    tensor.steady = !moved[t];
    // Once, because the residual is that of what lies between.
    if (!tensor.known) {
      tensor.head = ends_of(t)[0] && 2 * ends_of(t)[0] >= ends_of(t)[2];
      tensor.tail = ends_of(t)[1] && 2 * ends_of(t)[1] >= ends_of(t)[2];
    }
    for (std::size_t way = 0; way < kWayCount; ++way) {
      const std::size_t i = t * kWayCount + way;
      const bool proved = Evidence(&numbers[i * Evidence::kNumbers]).proves(kLikely, kUneven[way]);
      tensor.known = tensor.known || proved;
      // What proves nothing doubts nothing. So few pairs as link a tensor say nothing yet of how its likeness varies.
      const bool enough = mine[i].known > 0 && (period > 1 || calls.size() > kMinMatches);
      tensor.usual[way] = proved && enough ? Tensor::Usual{mine[i].mean(), mine[i].spread()} : Tensor::Usual{};
    }
  }
  if (series.period) return;
  for (std::size_t i = calls.size() - period; i < calls.size(); ++i) series.tensors[ordinal_of(i)].last = calls[i];
  series.period = period;
}

bool CallSequence::doubtful(const Tensor& tensor, const Values& values) const {
  const Likeness to_last(values.sketch, tensor.last.sketch);
  const bool moved = tensor.steady && !same_buffers(values, tensor.last);
  if (!to_last.known) return moved && values.sketch.usable();
  bool unlike = false, far = false, measured = false, unrelated = true;
  for (std::size_t way = 0; way < kWayCount; ++way) {
    const Likeness::Way& now = to_last.*kWays[way];
    const auto& usual = tensor.usual[way];
    measured = measured || usual.mean > Tensor::Usual{}.mean;
    if (!now.known) continue;
    // Where gradients turn, the next one may be opposed.
    unrelated = unrelated && (way == 0 ? std::abs(now.likeness) : now.likeness) < kUnrelated * std::sqrt(now.variance);
    if (now.likeness >= usual.mean / 2) continue;
    unlike = true;
    far = far || now.likeness < usual.mean - kLikely * std::hypot(usual.spread, std::sqrt(now.variance));
  }
  if (tensor.linked && !measured) far = unlike = unrelated;
  return moved ? !to_last.alike || unlike : !to_last.alike && far;
}

// How far the largest value may be from the last one's.
double CallSequence::proportion(const Tensor& tensor, const Likeness& to_last) {
  bool measured = false, any = false;
  for (std::size_t way = 0; way < kWayCount; ++way) {
    const Likeness::Way& now = to_last.*kWays[way];
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

CallSequence::Call CallSequence::begin(std::uint64_t count, Dtype type, const Values& values, bool ends) {
  // What can fail comes first, and leaves nothing.
  const std::uint64_t signature = CallSequence::signature(count, type);
  auto at = series_.find(signature);
  const bool made = at == series_.end(),
             known = !made && at->second.period && at->second.tensors[at->second.phase].known;
  Call call{known ? layout(at->second, count, ends) : Layout::unknown(count)};
  if (made) {
    Series fresh;
    fresh.history.emplace_back();
    at = series_.emplace(signature, std::move(fresh)).first;
  } else {
    at->second.history.emplace_back();  // room for record()
  }
  Series& series = at->second;
  ++now_;
  if (std::exchange(signature_, signature) == signature) series.adjacent = true;
  made_ = made;
  if (made) {
    series.id = next_id_++;
    series.next = 2;
  }
  values_ = values;
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
    if (made_) {
      series_.erase(signature_);
      --next_id_;
    }
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
  const bool apart = values_.apart || (values_.sketch.usable() && !values_.sketch.gradient());
  if (apart) values_.sketch = Sketch();
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
  if (kept_ > kMostSketches) make_room();
}

// After two foreign calls in a row: whose the second one was, if that is beyond doubt. A tensor's own call that was
// taken for another's, or a call that was left out, would make all that follow foreign.
void CallSequence::find_turn(Series& series, const SumOverRanks& sum) {
  constexpr std::size_t kNumbers = 2;
  std::vector<std::int64_t> numbers;
  insist([&] { numbers.assign(series.period * kNumbers, 0); });
  for (std::uint32_t t = 0; t < series.period; ++t) {
    const Likeness to_last(values_.sketch, series.tensors[t].last.sketch);
    for (std::size_t way = 0; way < kWayCount; ++way) {
      const Likeness::Way& now = to_last.*kWays[way];
      if (!now.known || !series.proved[way]) continue;
      numbers[t * kNumbers] += fixed(now.likeness);
      numbers[t * kNumbers + 1] += fixed(now.variance);
    }
  }
  sum(numbers);
  const auto likeness = [&](std::uint32_t t) { return real(numbers[t * kNumbers]); };
  const auto chance = [&](std::uint32_t t) { return std::sqrt(real(numbers[t * kNumbers + 1])); };
  std::uint32_t best = 0;
  for (std::uint32_t t = 1; t < series.period; ++t)
    if (likeness(t) > likeness(best)) best = t;
  if (likeness(best) <= kCertain * chance(best)) return;
  for (std::uint32_t t = 0; t < series.period; ++t)
    if (t != best && likeness(best) - likeness(t) < kLikely * std::hypot(chance(t), chance(best))) return;
  // What was left out keeps its place among the calls.
  for (const std::uint32_t next = (best + 1) % series.period; series.phase != next;
       series.phase = (series.phase + 1) % series.period) {
    const Values& last = series.tensors[series.phase].last;
    insist([&] { series.history.push_back({{}, last.send, last.receive}); });
    record(series, Values(series.history.back()));
  }
}

void CallSequence::record(Series& series, const Values& values) {
  series.history.back() = values;
  ++series.calls;
  ++kept_;
  const std::size_t most = series.period ? std::max<std::size_t>(2 * kRecent, 3 * series.period) : 3 * kLongestPeriod;
  for (; series.history.size() > most; --kept_) series.history.pop_front();
}

void CallSequence::make_room() {
  // Of what is known less is enough.
  for (auto& [_, series] : series_) {
    const std::size_t enough = std::max<std::size_t>(kEnough, 3 * series.period);
    for (; series.period && series.history.size() > enough; --kept_) series.history.pop_front();
  }
  if (kept_ <= kMostSketches - kMostSketches / 8) return;
  std::vector<std::uint64_t> uses;
  for (const auto& [signature, series] : series_) uses.push_back(series.used);
  const auto middle = uses.begin() + static_cast<std::ptrdiff_t>(uses.size() / 2);
  std::nth_element(uses.begin(), middle, uses.end());
  for (auto at = series_.begin(); at != series_.end();) {
    Series& series = at->second;
    if (series.used >= *middle) {
      ++at;
      continue;
    }
    if (series.period) forget_(prefix(series));
    kept_ -= series.history.size();
    at = series_.erase(at);
  }
}

void CallSequence::withdraw(Series& series) {
  forget_(prefix(series));
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
  if (series.period) forget_(prefix(series));
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
  series.next = 2;
}

CallSequence::Count CallSequence::count() const {
  Count count{.foreign = foreign_, .withdrawn = withdrawn_};
  for (const auto& [signature, series] : series_) {
    count.tensors += static_cast<std::uint64_t>(
        std::count_if(series.tensors.begin(), series.tensors.end(), [](const Tensor& t) { return t.known; }));
    count.ambiguous += !series.period && series.calls >= kManyCalls;
  }
  return count;
}

}  // namespace crimp
