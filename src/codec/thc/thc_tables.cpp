// THC's lookup tables: the normal quantile and a symmetric dynamic programme that minimises the variance of stochastic
// rounding.
#include <algorithm>
#include <vector>

#include "codec/thc/thc.hpp"

namespace crimp::thc {
namespace {

// Series in place of libm, whose last bits differ between machines.
double density(double x) {
  double term = 1, sum = 1;
  for (int k = 1; term > 1e-20 * sum; ++k) sum += term *= 0.5 * x * x / k;
  return 0.39894228040143267794 / sum;
}
double from_zero_to(double x) {  // P(0 < Z < x): density * (x + x^3/3 + x^5/15 + ...)
  double term = x, sum = x;
  for (int k = 1; term * term > 1e-40 * sum * sum; ++k) sum += term *= x * x / (2 * k + 1);
  return density(x) * sum;
}

// Of rounding the normal values between two neighbours of the table to either of them: the integral of (high - x)(x -
// low) density(x).
double variance(double low, double high) {
  const double mass = from_zero_to(high) - from_zero_to(low), first = density(low) - density(high),
               second = mass + low * density(low) - high * density(high);
  return (low + high) * first - low * high * mass - second;
}

}  // namespace

double normal_quantile(double p) {
  double low = 0, high = 5;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (1 - 2 * from_zero_to(middle) > p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

Tables make_tables(std::uint32_t bits, std::uint32_t granularity, std::uint32_t clip) {
  Tables t{};
  t.bits = bits;
  t.levels = 1u << bits;
  t.granularity = granularity;
  t.clip = clip;
  const double limit = normal_quantile(1.0 / clip), g = granularity;
  t.limit = static_cast<float>(limit);
  t.to_grid = static_cast<float>(g / (2 * limit));
  const bool odd = granularity % 2;
  t.unit = static_cast<float>((odd ? 1 : 2) * limit / g);

  // best[i][v]: the least variance of the gaps below v where T[i] = v. The upper half of the table mirrors the lower
  // one.
  const std::uint32_t half = t.levels / 2, most = (granularity - 1) / 2;
  const auto at = [&](std::uint32_t v) { return (2.0 * v / g - 1) * limit; };
  const auto gap = [&](std::uint32_t from, std::uint32_t to) { return variance(at(from), at(to)); };
  constexpr double kNever = 1e300;
  std::vector<std::vector<double>> best(half, std::vector<double>(most + 1, kNever));
  std::vector<std::vector<std::uint32_t>> before(half, std::vector<std::uint32_t>(most + 1));
  best[0][0] = 0;
  for (std::uint32_t i = 1; i < half; ++i)
    for (std::uint32_t v = i; v <= most; ++v)
      for (std::uint32_t from = i - 1; from < v; ++from) {
        if (best[i - 1][from] == kNever) continue;
        const double cost = best[i - 1][from] + gap(from, v);
        if (cost < best[i][v]) best[i][v] = cost, before[i][v] = from;
      }
  std::uint32_t v = 0;
  double least = kNever;
  for (std::uint32_t last = half - 1; last <= most; ++last) {
    const double cost = 2 * best[half - 1][last] + gap(last, granularity - last);
    if (cost < least) least = cost, v = last;
  }
  // E (|Z| - t)^2 beyond the limit t.
  const double beyond = 0.5 - from_zero_to(limit);
  t.error = least + 2 * ((1 + limit * limit) * beyond - limit * density(limit));
  for (std::uint32_t i = half; i-- > 0; v = before[i][v]) {
    t.value[i] = static_cast<std::uint8_t>(v);
    t.value[t.levels - 1 - i] = static_cast<std::uint8_t>(granularity - v);
  }

  for (std::uint32_t i = 0; i < t.levels; ++i)
    t.centred[i] = static_cast<std::int8_t>(odd ? 2 * t.value[i] - static_cast<int>(granularity)
                                                : t.value[i] - static_cast<int>(granularity / 2));
  for (std::uint32_t k = 0, i = 0; k < granularity; ++k) {
    if (k == t.value[i + 1]) ++i;
    const double slope = static_cast<double>(kOne) / (t.value[i + 1] - t.value[i]);
    t.slope[k] = static_cast<float>(slope);
    t.offset[k] = static_cast<float>(static_cast<double>(kOne) * i - slope * t.value[i]);
    t.level[k] = static_cast<std::uint8_t>(i);
  }
  t.offset[granularity] = static_cast<float>(kOne * (t.levels - 1));
  t.level[granularity] = static_cast<std::uint8_t>(t.levels - 1);
  for (std::uint32_t i = 0; i < t.levels; ++i)
    t.level_slope[i] = t.slope[t.value[i]], t.level_offset[i] = t.offset[t.value[i]];
  return t;
}

}  // namespace crimp::thc
