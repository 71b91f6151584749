#include "schedule/call_sequence.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace crimp {
namespace {

constexpr std::uint64_t kRecent = 64;      // comparisons that tell lags apart
constexpr std::uint64_t kFewest = 2;       // comparisons of a lag that may outdo another
constexpr double kCertain = 6, kLikely = 4;  // standard deviations
constexpr double kOdd = 2.5;               // a call is an odd one where it is so much less than half as alike as the mean of all
constexpr double kLeast = 0.1;             // mean likeness below which calls now and then alike, of tensors in a random order, look like noise
constexpr double kFixed = 0x1p32;          // evidence is added as whole numbers, so that every rank has the same sums in any order

std::int64_t fixed(double x) { return std::llround(x * kFixed); }
double real(std::int64_t x) { return static_cast<double>(x) / kFixed; }

// Sums of evidence over comparisons, and over ranks after an exchange.
struct Evidence {
  double likeness = 0, squares = 0, variance = 0, known = 0, odd = 0, moved = 0;
  static constexpr std::size_t kNumbers = 6;

  Evidence() = default;
  explicit Evidence(const std::vector<Likeness>& all) {
    for (const Likeness& l : all) {
      if (!l.known) continue;
      likeness += l.likeness;
      squares += l.likeness * l.likeness;
      variance += l.variance;
      known += 1;
    }
    for (const Likeness& l : all) odd += l.known && l.likeness < mean() / 2 - kOdd * std::sqrt(l.variance);
  }
  explicit Evidence(const std::int64_t* from)
      : likeness(real(from[0])), squares(real(from[1])), variance(real(from[2])), known(real(from[3])), odd(real(from[4])), moved(real(from[5])) {}
  void put(std::int64_t* to) const {
    const double all[] = {likeness, squares, variance, known, odd, moved};
    std::transform(std::begin(all), std::end(all), to, fixed);
  }

  double mean() const { return known > 0 ? likeness / known : 0; }
  double spread() const { return known > 0 ? std::sqrt(std::max(0.0, squares / known - mean() * mean())) : 0; }
  // Alike beyond chance, and not only now and then, as the calls of several tensors in a random order are.
  bool proves(double deviations) const {
    return known > 0 && mean() >= kLeast && likeness >= deviations * std::sqrt(variance) && odd <= known / 50 && spread() <= 1.25 * std::sqrt(variance / known + mean() * mean() / 4);
  }
};

bool same_buffers(const CallSequence::Values& a, const CallSequence::Values& b) { return a.send == b.send && a.receive == b.receive; }

}  // namespace

struct CallSequence::Lag {
  std::uint32_t lag;
  std::uint64_t comparisons, wanted, used;
  Evidence all;
  double unlike() const { return 1 - all.mean(); }
  double error() const { return all.spread() / std::sqrt(static_cast<double>(used)); }
};

std::string CallSequence::prefix(const Series& series) const {
  return kKeyPrefix + std::to_string(series.id) + "." + std::to_string(series.generation) + ".";
}

// Evidence of every lag that has enough calls to be compared.
std::vector<CallSequence::Lag> CallSequence::lags(const Series& series, const SumOverRanks& sum) const {
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
    all.push_back({lag, comparisons, series.backoff * std::max<std::uint64_t>((periods_ - 1) * lag, kMinMatches), used, Evidence(found)});
    all.back().all.moved = moved;
  }
  if (all.empty()) return all;
  std::vector<std::int64_t> numbers(all.size() * Evidence::kNumbers);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].all.put(&numbers[i * Evidence::kNumbers]);
  sum(numbers);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].all = Evidence(&numbers[i * Evidence::kNumbers]);
  if (std::any_of(all.begin(), all.end(), [](const Lag& l) { return l.all.moved == 0 && l.comparisons >= 4; }))
    std::erase_if(all, [](const Lag& l) { return l.all.moved > 0; });
  return all;
}

void CallSequence::gather(Series& series, const SumOverRanks& sum) {
  series.next = series.calls + std::clamp<std::uint64_t>(series.period ? series.calls : series.calls / 4, 1, 4096);
  const auto all = lags(series, sum);
  if (all.empty()) return;
  const Lag& best = *std::min_element(all.begin(), all.end(), [](const Lag& a, const Lag& b) { return a.unlike() < b.unlike(); });
  // The shortest of those that fit as well.
  const Lag& fit = *std::find_if(all.begin(), all.end(), [&](const Lag& l) { return l.unlike() <= 1.25 * best.unlike() + 2 * l.error() + 1e-6; });
  if (series.period) {
    const auto now = std::find_if(all.begin(), all.end(), [&](const Lag& l) { return l.lag == series.period; });
    const bool outdone = now == all.end() || (fit.lag > series.period && fit.unlike() + 2 * fit.error() < now->unlike() / 2);
    if (!outdone) return learn(series, series.period, sum);
    withdraw(series);
    return;
  }
  if (fit.comparisons >= fit.wanted && fit.all.proves(kCertain)) learn(series, fit.lag, sum);
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
    series.tensors.assign(period, {});
  }
  std::vector<std::vector<Likeness>> found(period);
  std::vector<Evidence> mine;
  std::vector<bool> moved(period);
  for (std::size_t i = period; i < calls.size(); ++i) {
    const std::size_t t = ordinal_of(i);
    found[t].emplace_back(calls[i].sketch, calls[i - period].sketch);
    if (!same_buffers(calls[i], calls[i - period])) moved[t] = true;
  }
  std::vector<std::int64_t> numbers(period * Evidence::kNumbers);
  for (const auto& of_tensor : found) mine.emplace_back(of_tensor);
  for (std::size_t t = 0; t < period; ++t) mine[t].put(&numbers[t * Evidence::kNumbers]);
  sum(numbers);
  for (std::size_t t = 0; t < period; ++t) {
    Tensor& tensor = series.tensors[t];
    const Evidence all(&numbers[t * Evidence::kNumbers]);
    if (!tensor.known) tensor.known = all.proves(kLikely);
    if (mine[t].known > 0) tensor.mean = mine[t].mean(), tensor.spread = mine[t].spread();
    tensor.steady = !moved[t];
  }
  if (series.period) return;
  for (std::size_t i = calls.size() - period; i < calls.size(); ++i) series.tensors[ordinal_of(i)].last = calls[i];
  series.period = period;
}

bool CallSequence::doubtful(const Tensor& tensor, const Values& values) const {
  const Likeness to_last(values.sketch, tensor.last.sketch);
  const bool moved = tensor.steady && !same_buffers(values, tensor.last);
  if (!to_last.known) return moved && values.sketch.usable();
  const double chance = std::sqrt(to_last.variance);
  if (moved) return !to_last.alike || to_last.likeness < tensor.mean / 2;
  return !to_last.alike && to_last.likeness < tensor.mean / 2 && to_last.likeness < tensor.mean - kLikely * std::hypot(tensor.spread, chance);
}

CallSequence::Call CallSequence::begin(std::uint64_t count, Dtype type, const Values& values) {
  ++now_;
  signature_ = count * 8 + static_cast<std::uint64_t>(type);
  const auto [at, made] = series_.try_emplace(signature_);
  Series& series = at->second;
  made_ = made;
  if (made) {
    series.id = next_id_++;
    series.next = 2;
  }
  values_ = values;
  largest_ = 0;
  outlier_ = false;
  if (!series.period) return {Layout::unknown(count)};
  const Tensor& tensor = series.tensors[series.phase];
  if (!tensor.known) return {Layout::unknown(count)};
  alike_ = Likeness(values.sketch, tensor.last.sketch).alike;
  return {Layout::make(Layout::Source::periodic, {{prefix(series) + std::to_string(series.phase), 0, count}}), doubtful(tensor, values)};
}

CallSequence::Proportion CallSequence::magnitude(double largest) {
  if (!std::isfinite(largest)) return Proportion::usual;
  largest_ = largest;
  const Series& series = series_.at(signature_);
  if (!series.period || !series.tensors[series.phase].known) return Proportion::usual;
  const Tensor& tensor = series.tensors[series.phase];
  const auto in_proportion = [&](double to) { return to == 0 || (largest <= kProportion * to && largest * kProportion >= to); };
  if (largest == 0 || in_proportion(tensor.largest) || (tensor.outlier > 0 && in_proportion(tensor.outlier))) return Proportion::usual;
  outlier_ = alike_;
  return alike_ ? Proportion::outlier : Proportion::foreign;
}

void CallSequence::end(Outcome outcome, const SumOverRanks& sum) {
  Series& series = series_.at(signature_);
  if (outcome == Outcome::failed) {
    if (made_) {
      series_.erase(signature_);
      --next_id_;
    }
    return;
  }
  series.used = now_;
  if (outcome == Outcome::foreign) {
    ++foreign_;
    series.foreign = (series.foreign << 1 | 1) & 0xffff;
    if (std::popcount(series.foreign) >= 4) withdraw(series);
    return;
  }
  if (series.period) {
    Tensor& tensor = series.tensors[series.phase];
    if (values_.sketch.usable() || !same_buffers(values_, tensor.last)) tensor.last = values_;
    tensor.outlier = outlier_ ? largest_ : 0;
    if (largest_ > 0 && !outlier_) tensor.largest = largest_;
    series.phase = (series.phase + 1) % series.period;
    series.foreign = series.foreign << 1 & 0xffff;
    if (++series.good % kForgive == 0) series.backoff = std::max(1u, series.backoff / 2);
  }
  record(series, std::move(values_));
  if (series.calls >= series.next) gather(series, sum);
  if (kept_ > kMostSketches) make_room();
}

void CallSequence::record(Series& series, Values values) {
  series.history.push_back(std::move(values));
  ++series.calls;
  ++kept_;
  const std::size_t most = series.period ? std::max<std::size_t>(2 * kRecent, 3 * series.period) : 3 * kLongestPeriod;
  for (; series.history.size() > most; --kept_) series.history.pop_front();
}

void CallSequence::make_room() {
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
  series.period = series.phase = series.foreign = 0;
  series.backoff = std::min(16u, 2 * series.backoff);
  series.tensors.clear();
  kept_ -= series.history.size();
  series.history.clear();
  series.calls = 0;
  series.next = 2;
}

CallSequence::Count CallSequence::count() const {
  Count count{.foreign = foreign_, .withdrawn = withdrawn_};
  for (const auto& [signature, series] : series_) {
    count.tensors += static_cast<std::uint64_t>(std::count_if(series.tensors.begin(), series.tensors.end(), [](const Tensor& t) { return t.known; }));
    count.ambiguous += !series.period && series.calls >= kManyCalls;
  }
  return count;
}

}  // namespace crimp
