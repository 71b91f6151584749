#include "codec/powersgd/powersgd_extents.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace crimp::powersgd {
namespace {

constexpr std::uint64_t kWidest = 16;  // times the root
constexpr int kIterations = 3;

std::uint64_t root_of(std::uint64_t count) {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(count)));
  while (root * root < count) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= count) --root;
  return root;
}

// Half of them: true extents stand out from those with which the same needs twice the rank.
std::uint32_t tried_columns(std::uint32_t rank) { return (rank + 1) / 2; }

}  // namespace

Matrix matrix_of(std::uint64_t count, const Codec& codec, const Extents* known) {
  const Parameters parameters = parameters_of(codec);
  const std::uint64_t cols = known && known->cols && known->count == count ? known->cols : parameters.cols;
  Matrix m = matrix_of(count, codec.parameter_word(), cols);
  if (known && (known->count == count ? known->calls : 0) < parameters.start) m.rank = 0;
  return m;
}

bool finds(std::uint64_t count, const Codec& codec, const Extents* known) {
  const Parameters parameters = parameters_of(codec);
  const bool same = known && known->count == count;
  if (!known || parameters.cols || (same && known->cols) || (same ? known->calls : 0) + 1 < parameters.start)
    return false;
  return matrix_of(count, codec.parameter_word()).rank != 0;
}

std::uint64_t feedback_elements(std::uint64_t count, const Codec& codec, const Extents* known) {
  if (!codec.feedback().kept()) return 0;
  const Parameters parameters = parameters_of(codec);
  std::uint64_t right = 0;
  if (parameters.cols) {
    right = matrix_of(count, codec.parameter_word(), parameters.cols).right();
  } else if (count >= parameters.min) {
    right = std::min(parameters.rank * kWidest * root_of(count),
                     count / 4);  // rank cols is at most a quarter where it does not travel exactly
  }
  if (known && known->given && known->count == count)
    right = std::max(right, matrix_of(count, codec.parameter_word(), known->cols).right());
  return count + right;
}

std::vector<std::uint64_t> candidates_of(std::uint64_t count, std::uint32_t parameter_word) {
  const Matrix own = matrix_of(count, parameter_word);
  if (!own.rank) return {};
  std::vector<std::uint64_t> all{own.cols};
  const std::uint64_t root = root_of(count);
  // Pairs of divisors, from the root outwards.
  for (std::uint64_t c = root; c >= 1 && c * kWidest >= root && all.size() < kMostCandidates; --c) {
    if (count % c != 0) continue;
    for (const std::uint64_t cols : {count / c, c})
      if (cols != own.cols && cols <= kWidest * root && matrix_of(count, parameter_word, cols).rank &&
          std::find(all.begin(), all.end(), cols) == all.end())
        all.push_back(cols);
  }
  return all;
}

std::uint64_t sampled_rows(std::uint64_t count, std::uint64_t cols) {
  return std::min(count / cols, std::max(kSampledRows, kSampled / cols));
}

std::uint64_t sampled_row(std::uint64_t count, std::uint64_t cols, std::uint64_t i, const Fresh& fresh) {
  const std::uint64_t whole = count / cols, rows = sampled_rows(count, cols), begin = i * whole / rows,
                      width = (i + 1) * whole / rows - begin;
  return begin +
         static_cast<std::uint64_t>((static_cast<double>(fresh_value(fresh, 0, i)) + 0.5) * static_cast<double>(width));
}

std::uint64_t sample_elements(std::uint64_t count, std::span<const std::uint64_t> candidates, std::uint32_t rank) {
  std::uint64_t most = 0;
  for (const std::uint64_t cols : candidates) {
    const std::uint64_t rows = sampled_rows(count, cols);
    most = std::max(most, rows * cols + rank * (rows + cols));
  }
  return most;
}

float kept_share(const float* values, std::uint64_t rows, std::uint64_t cols, std::uint32_t rank, const Fresh& fresh,
                 float* room) {
  const Matrix m{rows * cols, rows, cols,
                 static_cast<std::uint32_t>(std::min<std::uint64_t>({tried_columns(rank), rows, cols}))};
  float *const q = room, *const p = room + m.right();
  const auto energy = [](const float* x, std::uint64_t n) {
    double sum = 0;
    for (std::uint64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
  };
  const double all = energy(values, m.count);
  if (!(all > 0) || !std::isfinite(all)) return 0.0f;
  std::fill(q, q + m.right(), 0.0f);
  for (int i = 0; i < kIterations; ++i) {
    orthonormalise(q, cols, m.rank, &fresh);
    multiply(m, {values, nullptr}, q, p, 0, rows);
    orthonormalise(p, rows, m.rank, nullptr);
    multiply_transposed(m, {values, nullptr}, p, q, 0, cols);
  }
  const double kept = energy(q, m.right()) / all;
  return kept < 1 ? static_cast<float>(kept) : 1.0f;
}

std::uint64_t best_of(std::uint64_t count, std::span<const std::uint64_t> candidates, std::uint32_t rank,
                      std::span<const float> shares, std::size_t ranks) {
  std::uint64_t best = 0;
  double most = 0;
  bool any = false;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    any = any || shares[i] > 0.0f;
    const auto cols = static_cast<double>(candidates[i]),
               rows = static_cast<double>(sampled_rows(count, candidates[i]));
    // What columns keep of noise alone: the squares of its largest singular values.
    const double edge = std::sqrt(rows) + std::sqrt(cols),
                 noise = std::min(0.9, tried_columns(rank) * edge * edge / (rows * cols));
    const double cost = rank * (1 / cols + cols / static_cast<double>(count));
    const double score = (static_cast<double>(shares[i]) / static_cast<double>(ranks) - noise) / (1 - noise) - 2 * cost;
    if (best && score <= most) continue;
    best = candidates[i];
    most = score;
  }
  return any ? best : 0;
}

}  // namespace crimp::powersgd
