#include "schedule/past_sums.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/digest.hpp"

namespace crimp {
namespace {

// In squares of the values' norm. Parameters move by a hundredth of that in a round but for the wildest; a minibatch's
// gradient would have to be ten times its own noise to be so near to the sum of the one before.
constexpr double kNear = 0.01;
constexpr double kSame = 1e-12;     // the very values again continue nothing
constexpr double kOfPiece = 0.1;    // that a codec may have changed of a piece
constexpr std::size_t kFewest = 8;  // values of a piece, and of others'

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

// The share of a vector's square that lies beside another's direction, of which it has the sign.
double beside(std::span<const float> values, double squares, std::span<const float> direction) {
  const double along = product(values, direction), norm = product(direction, direction);
  return along > 0 && norm > 0 && std::isfinite(norm) ? std::max(0.0, 1 - along * along / (squares * norm)) : 1;
}

bool goes_on(std::span<const float> values, double squares, std::span<const float> gave, std::span<const float> sum) {
  return beside(values, squares, sum) <= kNear && beside(values, squares, gave) > kSame;
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

bool PastSums::continue_in(std::uint64_t key, const Sample& sample) {
  const auto at = kinds_.find(key);
  if (at == kinds_.end()) return false;
  const std::span<const float> values = sample.values();
  const double squares = product(values, values);
  Kind& kind = at->second;
  ++kind.calls;
  if (!(squares > 0) || !std::isfinite(squares)) return false;
  const bool continues = std::any_of(kind.sums.begin(), kind.sums.end(), [&](const Sum& s) {
    return s.gave.size() == values.size() &&
           (goes_on(values, squares, s.gave, s.sum) || is_piece(values, s.gave, s.sum));
  });
  if (continues) kind.calls = 0;
  return continues;
}

bool PastSums::skip(std::uint64_t key) noexcept {
  const auto at = kinds_.find(key);
  if (at == kinds_.end() || at->second.calls + 1 < kAll || (at->second.calls + 1) % kEvery < 2) return false;
  ++at->second.calls;
  return true;
}

bool PastSums::wanted(std::uint64_t key, bool slow) const {
  const auto at = kinds_.find(key);
  return at == kinds_.end() || at->second.calls < kAll || (!slow && at->second.calls % kEvery == 0);
}

void PastSums::keep(std::uint64_t key, const Sample& gave, const Sample& sum, std::size_t most) noexcept {
  try {
    Sum kept{{gave.values().begin(), gave.values().end()}, {sum.values().begin(), sum.values().end()}};
    if (kept.gave.size() != kept.sum.size()) return;
    Kind& kind = kinds_[key];
    kind.used = ++now_;
    if (kind.sums.size() < most) kind.sums.push_back(std::move(kept)), ++kept_;
    else kind.sums[kind.next++ % most] = std::move(kept);
    if (kept_ > kMost) make_room();
  } catch (const std::bad_alloc&) {
  }
}

void PastSums::make_room() {
  const auto oldest = std::min_element(kinds_.begin(), kinds_.end(),
                                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  kept_ -= oldest->second.sums.size();
  kinds_.erase(oldest);
}

}  // namespace crimp
