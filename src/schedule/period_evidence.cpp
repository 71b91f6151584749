#include "schedule/period_evidence.hpp"

#include <algorithm>
#include <cmath>

#include "core/reserve.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kFewestPairs = 2;  // comparisons of a lag that may outdo another
constexpr double kOdd = 2.5;  // a call is an odd one where it is so much less than half as alike as the mean of all
constexpr double kLeast =
    0.1;  // mean likeness below which calls now and then alike, of tensors in a random order, look like noise
// Mean likeness of nearly the same values again; of what tensors hardly have in common.
constexpr double kSure = 0.8, kMostly = 0.5;
constexpr double kTwoKinds = 0.15;  // common variance of pairs of two kinds
constexpr double kFixed = 0x1p32;
// Common variance, in squares of the mean, that one tensor's own changes may have. Directions turn together as the
// optimizer moves.
constexpr double kUneven[Evidence::kWayCount] = {0.4, 0.05};

}  // namespace

bool same_buffers(const SketchedCall& a, const SketchedCall& b) { return a.send == b.send && a.receive == b.receive; }

std::int64_t to_fixed(double x) { return std::llround(x * kFixed); }
double from_fixed(std::int64_t x) { return static_cast<double>(x) / kFixed; }

Evidence::Evidence(const std::vector<Likeness>& all, Likeness::Way Likeness::*way) {
  const Likeness::Way* before = nullptr;
  for (const Likeness& l : all) {
    if (!(l.*way).known) continue;
    if (before) {
      both_ += ((l.*way).halves[0] - before->halves[0]) * ((l.*way).halves[1] - before->halves[1]) / 2;
      steps_ += 1;
    }
    before = &(l.*way);
    likeness_ += (l.*way).likeness;
    squares_ += (l.*way).likeness * (l.*way).likeness;
    variance_ += (l.*way).variance;
    known_ += 1;
  }
  for (const Likeness& l : all)
    odd_ += (l.*way).known && (l.*way).likeness < mean() / 2 - kOdd * std::sqrt((l.*way).variance);
}

Evidence::Evidence(const std::int64_t* from)
    : likeness_(from_fixed(from[0])), squares_(from_fixed(from[1])), variance_(from_fixed(from[2])),
      known_(from_fixed(from[3])), odd_(from_fixed(from[4])), both_(from_fixed(from[5])), steps_(from_fixed(from[6])) {}

void Evidence::put(std::int64_t* to) const {
  const double all[kNumbers] = {likeness_, squares_, variance_, known_, odd_, both_, steps_};
  std::transform(std::begin(all), std::end(all), to, to_fixed);
}

double Evidence::mean() const { return known_ > 0 ? likeness_ / known_ : 0; }
double Evidence::spread() const {
  return known_ > 0 ? std::sqrt(std::max(0.0, squares_ / known_ - mean() * mean())) : 0;
}
double Evidence::common() const { return steps_ > 0 ? both_ / steps_ : 0; }

// Of k tensors with nothing in common the common variance is k - 1 squares of the mean.
bool Evidence::proves(double deviations, std::size_t way) const {
  const double uneven = mean() > 0 ? common() / (mean() * mean()) : 0;
  return known_ > 0 && mean() >= kLeast && likeness_ >= deviations * std::sqrt(variance_) && odd_ <= known_ / 50 &&
         uneven <= kUneven[way] + 1e-9;
}

double PeriodEvidence::Lag::error(std::size_t way) const {
  return ways[way].spread() / std::sqrt(static_cast<double>(used));
}

bool PeriodEvidence::Lag::of_two_kinds() const {
  return std::any_of(std::begin(ways), std::end(ways), [](const Evidence& e) { return e.common() > kTwoKinds; });
}

PeriodEvidence::PeriodEvidence(const std::deque<SketchedCall>& calls, const Terms& terms, const SumOverRanks& sum)
    : calls_(calls), terms_(terms) {
  constexpr std::size_t kNumbers = Evidence::kWayCount * Evidence::kNumbers + 2;
  std::vector<std::int64_t> numbers;
  insist([&] {  // the other ranks come to the sum
    all_ = of_this_rank();
    numbers.assign(all_.size() * kNumbers, 0);
  });
  if (all_.empty()) return;
  bytes_ = numbers.size() * sizeof numbers[0];
  for (std::size_t i = 0; i < all_.size(); ++i) {
    for (std::size_t way = 0; way < Evidence::kWayCount; ++way)
      all_[i].ways[way].put(&numbers[i * kNumbers + way * Evidence::kNumbers]);
    numbers[(i + 1) * kNumbers - 2] = to_fixed(all_[i].moved);
    numbers[(i + 1) * kNumbers - 1] = to_fixed(all_[i].changes);
  }
  sum(numbers);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    for (std::size_t way = 0; way < Evidence::kWayCount; ++way)
      all_[i].ways[way] = Evidence(&numbers[i * kNumbers + way * Evidence::kNumbers]);
    all_[i].moved = from_fixed(numbers[(i + 1) * kNumbers - 2]);
    all_[i].changes = from_fixed(numbers[(i + 1) * kNumbers - 1]);
  }
  // Where at one lag all buffers repeat on all ranks, it is no other.
  if (std::any_of(all_.begin(), all_.end(), [](const Lag& l) { return l.keeps_places(); }))
    std::erase_if(all_, [](const Lag& l) { return l.moved > 0; });
}

std::vector<PeriodEvidence::Lag> PeriodEvidence::of_this_rank() const {
  std::vector<Lag> all;
  for (std::uint32_t lag = 1; lag < calls_.size() && lag <= kLongest; ++lag) {
    const std::uint64_t comparisons = calls_.size() - lag;
    if (comparisons < kFewestPairs) break;
    const std::uint64_t asked = terms_.backoff * std::max<std::uint64_t>((terms_.periods - 1) * lag, kMinMatches),
                        wanted = std::min<std::uint64_t>(asked, kKept - lag);
    const std::uint64_t used = std::min(comparisons, kRecent);
    std::vector<Likeness> found;
    double moved = 0, changes = 0;
    for (std::size_t first = calls_.size() - used, i = first; i < calls_.size(); ++i) {
      found.emplace_back(calls_[i].sketch, calls_[i - lag].sketch);
      moved += !same_buffers(calls_[i], calls_[i - lag]);
      changes += i > first && !same_buffers(calls_[i], calls_[i - 1]);
    }
    all.push_back({lag, comparisons, wanted, used, {}, moved, changes});
    for (std::size_t way = 0; way < Evidence::kWayCount; ++way)
      all.back().ways[way] = Evidence(found, Evidence::kWays[way]);
  }
  return all;
}

const PeriodEvidence::Lag* PeriodEvidence::find(std::uint32_t lag) const {
  const auto at =
      std::lower_bound(all_.begin(), all_.end(), lag, [](const Lag& l, std::uint32_t of) { return l.lag < of; });
  return at != all_.end() && at->lag == lag ? &*at : nullptr;
}

const PeriodEvidence::Lag& PeriodEvidence::fitting(std::size_t way) const {
  const Lag& best = *std::min_element(all_.begin(), all_.end(),
                                      [&](const Lag& a, const Lag& b) { return a.unlike(way) < b.unlike(way); });
  const Lag& fit = *std::find_if(all_.begin(), all_.end(), [&](const Lag& l) {
    return l.unlike(way) <= best.unlike(way) + 2 * std::hypot(l.error(way), best.error(way)) + 1e-6;
  });
  // Of tensors that resemble each other, such as layers of one input, every lag is nearly as good; over all its
  // multiples the true one still stands out.
  for (const Lag& l : all_)
    if (l.lag > fit.lag && l.lag % fit.lag == 0 && stands_out(way, fit.lag, l.lag)) return l;
  return fit;
}

bool PeriodEvidence::even(std::size_t way, std::uint32_t lag) const {
  double common = 0, squares = 0;
  for (const Lag& l : all_) {
    if (l.lag % lag != 0 || l.lag > 16 * lag) continue;
    common += static_cast<double>(l.used) * l.ways[way].common();
    squares += static_cast<double>(l.used) * l.ways[way].mean() * l.ways[way].mean();
  }
  return common <= kUneven[way] * squares + 1e-9;
}

bool PeriodEvidence::covered(std::size_t way, const Lag& fit) const {
  const double mean = fit.ways[way].mean();
  if (way == 0 || mean > kSure) return true;
  double pairs = static_cast<double>(fit.comparisons);
  if (!terms_.adjacent || mean > kMostly) {
    pairs = 0;
    for (const Lag& l : all_)
      if (l.lag % fit.lag == 0 && l.lag <= 16 * fit.lag) pairs += static_cast<double>(l.used);
  }
  return pairs >= 3 * terms_.backoff / (mean * mean);
}

bool PeriodEvidence::stands_out(std::size_t way, std::uint32_t lag, std::uint32_t of) const {
  double sum = 0, squares = 0, errors = 0, n = 0;
  for (std::uint32_t l = of; l <= 16 * of && l <= all_.back().lag; l += of) {
    const Lag *at = find(l), *before = find(l - lag), *behind = find(l + lag);
    if (!at || !before || !behind) continue;
    const double gain = at->ways[way].mean() - (before->ways[way].mean() + behind->ways[way].mean()) / 2;
    sum += gain, squares += gain * gain, errors += at->error(way) * at->error(way), n += 1;
  }
  if (n < 4) return false;
  const double mean = sum / n, seen = std::max(0.0, squares / n - mean * mean) / (n - 1), expected = errors / n / n;
  return mean > Evidence::kLikely * std::sqrt(std::max(seen, expected));
}

bool PeriodEvidence::linked(const SumOverRanks& sum) const {
  const std::size_t n = calls_.size();
  if (!find(1) || n > kFewCalls || n - 1 < terms_.backoff * std::max(terms_.periods - 1, kFewMatches)) return false;
  // Buffers that take turns from the first call on will rule this lag out.
  if (all_.front().moved > 0 && std::any_of(all_.begin(), all_.end(), [](const Lag& l) { return l.moved == 0; }))
    return false;
  if (!hang_together(sum)) return false;
  // At no other distance more alike in either way; in magnitudes, where these say anything, evenly so, and not opposed.
  for (std::size_t way = 0; way < Evidence::kWayCount; ++way) {
    const Evidence& next = all_.front().ways[way];
    if (!next.known() || (way > 0 && std::abs(next.mean()) < kLeast)) continue;
    if (next.mean() < kLeast || fitting(way).lag != 1 || (way > 0 && !even(way, 1))) return false;
  }
  return true;
}

bool PeriodEvidence::hang_together(const SumOverRanks& sum) const {
  const std::size_t n = calls_.size();
  constexpr std::size_t kNumbers = 3;
  std::vector<std::int64_t> numbers;
  std::vector<bool> reached;
  std::vector<std::size_t> front;
  insist([&] { numbers.assign(n * n * kNumbers, 0), reached.resize(n), front.reserve(n); });
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Likeness likeness(calls_[i].sketch, calls_[j].sketch);
      if (!likeness.direction.known) continue;
      std::int64_t* to = &numbers[(i * n + j) * kNumbers];
      to[0] = to_fixed(likeness.direction.likeness), to[1] = to_fixed(likeness.direction.variance), to[2] = to_fixed(1);
    }
  sum(numbers);
  front.push_back(0);
  reached[0] = true;
  while (!front.empty()) {
    const std::size_t at = front.back();
    front.pop_back();
    for (std::size_t other = 0; other < n; ++other) {
      const std::int64_t* pair = &numbers[(std::max(at, other) * n + std::min(at, other)) * kNumbers];
      if (reached[other] || pair[2] == 0 || from_fixed(pair[0]) < kLeast * from_fixed(pair[2]) ||
          from_fixed(pair[0]) < Evidence::kLikely * std::sqrt(from_fixed(pair[1])))
        continue;
      reached[other] = true;
      front.push_back(other);
    }
  }
  return std::all_of(reached.begin(), reached.end(), [](bool r) { return r; });
}

}  // namespace crimp
