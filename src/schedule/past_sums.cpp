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

// In squares of the values' norm. Parameters move by a hundredth of that in a round but for the wildest; a minibatch's
// gradient would have to be ten times its own noise to be so near to the sum of the one before.
constexpr double kNear = 0.01;
// Without the largest values, which may be so few that they have one direction only: a gradient of very uneven
// magnitudes is as far there, parameters hardly farther.
constexpr double kNearRest = 0.02;
constexpr std::size_t kLargest = 16;  // of so many values one is left out there
constexpr double kSame = 1e-12;       // the very values again continue nothing
constexpr double kOfPiece = 0.1;      // that a codec may have changed of a piece
constexpr std::size_t kFewest = 8;    // values of a piece, and of others'
constexpr double kLooksNear = 0.75;   // at a glance

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

bool is_piece(std::span<const float> values, std::span<const float> gave, std::span<const float> sum) {
  std::size_t own = 0, others = 0;
  double squares = 0, lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if ((values[i] != 0) != (gave[i] != 0)) return false;
    const double off = static_cast<double>(sum[i]) - static_cast<double>(gave[i]);
    if (gave[i] == 0) others += sum[i] != 0;
    else ++own, squares += std::pow(static_cast<double>(gave[i]), 2), lost += off * off;
  }
  return own >= kFewest && others >= kFewest && lost <= kOfPiece * squares;
}

}  // namespace

std::uint64_t PastSums::key_of(std::string_view name) { return digest(name); }

void PastSums::glance(std::span<const float> values, std::array<float, kGlance>& to) noexcept {
  const std::size_t stride = std::max<std::size_t>(1, values.size() / kGlance);
  for (std::size_t i = 0; i < kGlance; ++i) to[i] = i * stride < values.size() ? values[i * stride] : 0;
}

bool PastSums::continue_in(std::uint64_t key, const Sample& sample) noexcept try {
  if (++now_ % 8192 == 0) forget_unused();
  if (kinds_.size() >= kMostKinds && !kinds_.count(key)) return false;
  Kind& kind = kinds_[key];
  kind.used = now_;
  ++kind.calls;
  const std::span<const float> values = sample.values();
  const double squares = product(values, values);
  if (kind.sums.empty() || !measures(squares)) return false;
  const bool holes = std::count(values.begin(), values.end(), 0.0f) >= static_cast<std::ptrdiff_t>(kFewest);
  std::array<float, kGlance> some;
  glance(values, some);
  const double of_some = product(some, some);
  const auto goes_on = [&](const Sum& s) {
    // Where a glance sees hardly anything it says nothing.
    if (of_some > squares / 64 && s.glance_squares > 0 &&
        beside(product(some, s.glance), of_some, s.glance_squares) > kLooksNear)
      return false;
    return beside(product(values, s.sum), squares, s.sum_squares) <= kNear &&
           beside(product(values, s.gave), squares, s.gave_squares) > kSame &&
           beside_in_rest(values, s.sum) <= kNearRest;
  };
  const bool continues = std::any_of(kind.sums.begin(), kind.sums.end(), [&](const Sum& s) {
    return s.gave.size() == values.size() && s.sum.size() == values.size() &&
           (goes_on(s) || (holes && is_piece(values, s.gave, s.sum)));
  });
  if (continues) kind.calls = 0;
  return continues;
} catch (const std::bad_alloc&) {
  return false;
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
  if (more) kind.sums.emplace_back(), ++kept_;
  Sum& kept = more ? kind.sums.back() : kind.sums[kind.next++ % kind.sums.size()];
  kept.sum_squares = 0;  // until all of it is there
  kept.gave.assign(x.begin(), x.end());
  kept.sum.assign(y.begin(), y.end());
  glance(y, kept.glance);
  kept.glance_squares = product(kept.glance, kept.glance);
  kept.gave_squares = gave_squares;
  kept.sum_squares = sum_squares;
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
  most.sums.pop_back();
  --kept_;
  return true;
}

void PastSums::forget_unused() noexcept {
  std::erase_if(kinds_, [this](const auto& kind) {
    const bool unused = now_ - kind.second.used > 4 * kMostKinds;
    if (unused) kept_ -= kind.second.sums.size(), full_ = false;
    return unused;
  });
}

}  // namespace crimp
