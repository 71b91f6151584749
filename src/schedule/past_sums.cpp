#include "schedule/past_sums.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>
#include <span>
#include <utility>

#include "core/digest.hpp"

namespace crimp {
namespace {

// In squares of the values' norm. Parameters move by a hundredth of that in a round but for the first ones; a
// minibatch's gradient would have to be ten times its own noise to be so near to the sum of the one before.
constexpr double kNear = 0.01;
// Without the largest values, which may be so few that they have one direction only: a gradient of very uneven
// magnitudes is as far there, parameters hardly farther.
constexpr double kNearRest = 0.02;
constexpr std::size_t kLargest = 16;  // of so many values one is left out there
constexpr double kInPart = 0.6;       // farther ones are not asked
constexpr double kTells = 0.8;        // b of averages
constexpr int kInARow = 6;            // told for so long: then kTellsStill is enough
constexpr double kTellsStill = 0.6;
constexpr int kFewLinks = 2;       // tell nothing
constexpr int kMostUndecided = 4;  // calls of one tensor that pass for that
constexpr double kOlder = 0.8;     // what a link weighs beside the next one
constexpr double kSame = 1e-12;    // the very values again continue nothing
// Of a piece's square, that a codec may have changed; where nobody gave anything else less, because another rank may
// have given little.
constexpr double kOfPiece = 0.1, kOfAll = 0.003;
constexpr std::size_t kFewest = 8;   // values of a piece, and of others'
constexpr double kLooksNear = 0.75;  // at a glance
constexpr int kFullLooks = 8;        // at the newest

double product(std::span<const float> a, std::span<const float> b) {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  const std::size_t whole = a.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  for (std::size_t i = whole; i < a.size(); ++i) lanes[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

bool measures(double squares) { return squares > 0 && std::isfinite(squares); }

// The share of a vector's square that lies beside another's direction, of which it has the sign.
double beside(double along, double squares, double of_direction) {
  return along > 0 && measures(of_direction) ? std::max(0.0, 1 - along * along / (squares * of_direction)) : 1;
}

// The same without the largest values.
double beside_in_rest(std::span<const float> values, std::span<const float> direction) {
  std::vector<float> magnitudes(values.size());
  std::transform(values.begin(), values.end(), magnitudes.begin(), [](float v) { return std::abs(v); });
  const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / kLargest);
  std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
  double along = 0, squares = 0, of_direction = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) > *last) continue;
    const auto v = static_cast<double>(values[i]), d = static_cast<double>(direction[i]);
    along += v * d, squares += v * v, of_direction += d * d;
  }
  return squares > 0 ? beside(along, squares, of_direction) : 0;
}

// Whether what a rank gave is its own in the sum. in_places: others gave something elsewhere.
bool is_own(std::span<const float> gave, std::span<const float> sum, bool* in_places) {
  std::size_t own = 0, others = 0;
  double squares = 0, lost = 0;
  for (std::size_t i = 0; i < gave.size(); ++i) {
    const double off = static_cast<double>(sum[i]) - static_cast<double>(gave[i]);
    if (gave[i] == 0) others += sum[i] != 0;
    else ++own, squares += std::pow(static_cast<double>(gave[i]), 2), lost += off * off;
  }
  *in_places = others >= kFewest;
  return own >= kFewest && lost <= (*in_places ? kOfPiece : kOfAll) * squares;
}

bool same_places(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) { return (x != 0) == (y != 0); });
}

}  // namespace

std::uint64_t PastSums::key_of(std::string_view name, std::uint64_t count) {
  return digest(name) ^ count * 0x9e3779b97f4a7c15u;
}

void PastSums::glance(std::span<const float> values, std::array<float, kGlance>& to) noexcept {
  const std::size_t stride = std::max<std::size_t>(1, values.size() / kGlance);
  for (std::size_t i = 0; i < kGlance; ++i) to[i] = i * stride < values.size() ? values[i * stride] : 0;
}

const PastSums::Sum* PastSums::Kind::find(std::uint64_t id) const noexcept {
  const auto at = std::find_if(sums.begin(), sums.end(), [id](const Sum& s) { return id && s.id == id; });
  return at == sums.end() ? nullptr : &*at;
}

PastSums::Answer PastSums::continue_in(std::uint64_t key, const Sample& sample, Whose whose) noexcept try {
  if (++now_ - forgotten_at_ >= 8192) forget_unused();
  if (kinds_.size() >= kMostKinds && !kinds_.count(key)) return Answer::no;
  Kind& kind = kinds_[key];
  kind.used = now_;
  kind.best = 0;
  kind.told = false;
  ++kind.calls;
  const std::span<const float> values = sample.values();
  const double squares = product(values, values);
  if (kind.sums.empty() || !measures(squares)) return Answer::no;
  std::array<float, kGlance> some;
  glance(values, some);
  const double of_some = product(some, some);
  const auto looks_near = [&](const Sum& s) {  // where a glance sees hardly anything it says nothing
    return of_some <= squares / 64 || s.glance_squares <= 0 ||
           beside(product(some, s.glance), of_some, s.glance_squares) <= kLooksNear;
  };
  const Sum* best = nullptr;
  double least = kInPart;
  bool piece = false;
  int looks = 0;
  for (std::size_t back = 1; back <= kind.sums.size() && least > kNear && !piece; ++back) {
    const std::size_t n = kind.sums.size();
    const Sum& s = kind.sums[(kind.next + n - back) % n];
    if (s.sum.size() != values.size() || s.gave.size() != values.size()) continue;
    // Where nobody else gave anything that may have been one call's affair.
    piece = s.own && (s.in_places || back == 1) && same_places(values, s.gave);
    if (piece || looks == kFullLooks || !looks_near(s)) continue;
    ++looks;
    const double far = beside(product(values, s.sum), squares, s.sum_squares);
    // The newest one, but for those that are far nearer, as where several tensors of a key are like each other.
    if (far < (best ? least / 2 : least) && beside(product(values, s.gave), squares, s.gave_squares) > kSame)
      best = &s, least = far;
  }
  const auto answer = [&] {
    if (!best) return Answer::no;
    kind.best = best->id;
    kind.told = true;
    if (least <= kNear && beside_in_rest(values, best->sum) <= kNearRest) return Answer::yes;
    if (whose == Whose::gradient) {
      kind.told = false;
      return Answer::no;
    }
    if (best->links < kFewLinks) {
      kind.told = false;
      return whose == Whose::one && kind.undecided < kMostUndecided && ++kind.undecided ? Answer::perhaps : Answer::no;
    }
    if (best->in_a_row >= kInARow && best->b >= kTellsStill * best->weight) return Answer::yes;
    kind.told = best->b >= kTells * best->weight;
    return kind.told ? Answer::perhaps : Answer::no;
  };
  const Answer of_best = answer();
  if (of_best != Answer::no || piece) kind.calls = 0;
  return piece ? Answer::yes : of_best;
} catch (const std::bad_alloc&) {
  return Answer::no;
}

// b of the sum, of the one that it continued and of the one before that.
void PastSums::link(const Kind& kind, Sum& sum) noexcept {
  sum.before = kind.best;
  sum.b = sum.weight = 0;
  sum.links = sum.in_a_row = 0;
  const Sum* const second = kind.find(kind.best);
  const Sum* const first = second ? kind.find(second->before) : nullptr;
  if (second) sum.b = kOlder * second->b, sum.weight = kOlder * second->weight, sum.links = second->links;
  if (second && kind.told) sum.in_a_row = second->in_a_row + 1;
  if (!first || first->sum.size() != sum.sum.size() || second->sum.size() != sum.sum.size()) return;
  double along = 0, squares = 0;
  for (std::size_t i = 0; i < sum.sum.size(); ++i) {
    const double r1 = static_cast<double>(first->sum[i]), to_second = static_cast<double>(second->sum[i]) - r1;
    along += (static_cast<double>(sum.sum[i]) - r1) * to_second, squares += to_second * to_second;
  }
  if (!measures(squares)) return;
  sum.b += along / squares;
  sum.weight += 1;
  ++sum.links;
}

bool PastSums::skip(std::uint64_t key) noexcept {
  const auto at = kinds_.find(key);
  if (at == kinds_.end() || at->second.calls + 1 <= kAllOfOne || (at->second.calls + 1) % kEvery < 2) return false;
  ++at->second.calls;
  at->second.used = ++now_;
  return true;
}

bool PastSums::wanted(std::uint64_t key, bool slow) const noexcept {
  const auto at = kinds_.find(key);
  if (at == kinds_.end() || (full_ && at->second.sums.empty())) return false;
  return at->second.calls <= kAll || (!slow && at->second.calls % kEvery == 0);
}

void PastSums::keep(std::uint64_t key, const Sample& gave, const Sample& sum, std::size_t most) noexcept try {
  const std::span<const float> x = gave.values(), y = sum.values();
  const double gave_squares = product(x, x), sum_squares = product(y, y);
  const auto at = kinds_.find(key);
  if (x.size() != y.size() || !measures(gave_squares) || !measures(sum_squares) || at == kinds_.end()) return;
  Kind& kind = at->second;
  const bool more = kind.sums.size() < most && has_room(kind);
  if (!more && kind.sums.empty()) return;
  if (more) {
    // At the end of the ring, which is where the oldest follows.
    std::rotate(kind.sums.begin(), kind.sums.begin() + static_cast<std::ptrdiff_t>(kind.next), kind.sums.end());
    kind.sums.emplace_back(), ++kept_;
    kind.next = 0;
  }
  Sum kept = std::move(more ? kind.sums.back() : kind.sums[kind.next]);
  Sum& place = more ? kind.sums.back() : kind.sums[kind.next];
  place = {};
  kept.gave.assign(x.begin(), x.end());
  kept.sum.assign(y.begin(), y.end());
  link(kind, kept);
  kept.id = ++ids_;
  glance(y, kept.glance);
  kept.glance_squares = product(kept.glance, kept.glance);
  kept.own = is_own(x, y, &kept.in_places);
  kept.gave_squares = gave_squares;
  kept.sum_squares = sum_squares;
  place = std::move(kept);
  if (!more) kind.next = (kind.next + 1) % kind.sums.size();
} catch (const std::bad_alloc&) {
}

// The first sum of a key may take the place of one of those that another has most of.
bool PastSums::has_room(const Kind& kind) noexcept {
  if (kept_ < kMost) return true;
  if (!kind.sums.empty() || full_) return false;
  Kind& most = std::max_element(kinds_.begin(), kinds_.end(), [](const auto& a, const auto& b) {
                 return a.second.sums.size() < b.second.sums.size();
               })->second;
  full_ = most.sums.size() < 2;
  if (full_) return false;
  most.sums.erase(most.sums.begin() + static_cast<std::ptrdiff_t>(most.next));
  most.next %= most.sums.size();
  --kept_;
  return true;
}

void PastSums::forget_unused() noexcept {
  forgotten_at_ = now_;
  std::erase_if(kinds_, [this](const auto& kind) {
    const bool unused = now_ - kind.second.used > 4 * kMostKinds;
    if (unused) kept_ -= kind.second.sums.size(), full_ = false;
    return unused;
  });
}

}  // namespace crimp
