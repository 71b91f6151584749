// SIDCo's threshold estimators (Abdelmoniem et al., MLSys 2021): which magnitude a given share of the elements exceeds,
// from the moments of a fitted tail. All in float64 with our own log and exp, so that every machine gets the same bits.
// WIRE_FORMAT.md, section 4.22.
#pragma once
#include <bit>
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::sidco {

inline constexpr std::uint32_t kLanes = 32;  // element i of 10240 is added to sum i mod 32
inline constexpr double kFirstShare = 0.25;  // what the first of several stages keeps
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// ln x for x > 0 that is normal; relative error below 1e-15.
CRIMP_HD double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  double e = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 0x1.6a09e667f3bcdp0) {  // sqrt 2
    m = m * 0.5;
    e = e + 1.0;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 21;
  for (int odd = 19; odd >= 3; odd -= 2) p = p * z + 1.0 / odd;
  return e * kLn2 + 2.0 * (s + s * (z * p));
}

// e^x for |x| <= 700.
CRIMP_HD double exp_of(double x) {
  const double n = static_cast<double>(static_cast<std::int64_t>(x / kLn2 + (x < 0 ? -0.5 : 0.5)));
  const double r = x - n * 0x1.62e42fee00000p-1 - n * 0x1.a39ef35793c76p-33;
  double p = 1.0;
  for (int i = 16; i >= 1; --i) p = p * r / i + 1.0;
  return p * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

// ln Gamma(s) for s > 0: Stirling's series behind ten steps of the recurrence.
CRIMP_HD double log_gamma(double s) {
  double product = 1.0;
  for (int i = 0; i < 10; ++i) {
    product = product * s;
    s = s + 1.0;
  }
  const double z = 1.0 / (s * s);
  const double series = (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680 - z / 1188)))) / s;
  return (s - 0.5) * log_of(s) - s + 0x1.d67f1c864beb5p-1 + series - log_of(product);  // the constant is ln(2 pi) / 2
}

// The regularised lower incomplete gamma function P(s, x), x > 0, by its series.
CRIMP_HD double gamma_below(double s, double x, double log_gamma_s1) {
  double term = 1.0, sum = 1.0;
  for (int n = 1; n < 1000 && term > 1e-17 * sum; ++n) {
    term = term * x / (s + n);
    sum = sum + term;
  }
  const double power = s * log_of(x) - x - log_gamma_s1;
  return power < -700.0 ? 0.0 : sum * exp_of(power);
}

// x with P(s, x) = p, 0 < p < 1, by bisection.
CRIMP_HD double gamma_quantile(double s, double p) {
  const double g = log_gamma(s + 1.0);
  double low = 0.0, high = 4.0 * s + 60.0;
  for (int i = 0; i < 64; ++i) {
    const double middle = 0.5 * (low + high);
    if (gamma_below(s, middle, g) < p) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return 0.5 * (low + high);
}

// Of the magnitudes above `from`: how many, and the sums of their excess, its square and (where asked for) the
// logarithm of the magnitude.
struct Moments {
  double from = 0, count = 0, excess = 0, squares = 0, logs = 0;
};

// The magnitude that the share rho of those that were counted exceeds.
CRIMP_HD double exponential_tail(const Moments& m, double rho) { return m.from - m.excess / m.count * log_of(rho); }

CRIMP_HD double pareto_tail(const Moments& m, double rho) {
  const double mean = m.excess / m.count, variance = m.squares / m.count - mean * mean;
  if (!(variance > 1e-6 * (mean * mean))) return exponential_tail(m, rho);
  const double ratio = mean * mean / variance, k = 0.5 * (ratio - 1.0), scale = 0.5 * mean * (ratio + 1.0);
  const double power = k * log_of(rho);
  if ((k < 0 ? -k : k) < 1e-6 || power < -700.0 || power > 700.0) return exponential_tail(m, rho);
  return m.from + scale * (1.0 - exp_of(power)) / k;
}

// The first stage of the gamma fit; from = 0. Shapes are limited to 1/64..64, beyond which the data is no gamma
// distribution.
CRIMP_HD double gamma_tail(const Moments& m, double rho) {
  const double mean = m.excess / m.count;
  const double s = log_of(mean) - m.logs / m.count;
  double shape = 64.0;
  if (s > 1.0 / 128) {
    // (s - 3)^2 + 24 s > 0; its square root by Newton from above, a fixed number of steps.
    const double square = (s - 3.0) * (s - 3.0) + 24.0 * s;
    double root = square > 1.0 ? square : 1.0;
    for (int i = 0; i < 40; ++i) root = 0.5 * (root + square / root);
    shape = (3.0 - s + root) / (12.0 * s);
  }
  shape = shape < 1.0 / 64 ? 1.0 / 64 : shape > 64.0 ? 64.0 : shape;
  return mean / shape * gamma_quantile(shape, 1.0 - rho);
}

}  // namespace crimp::sidco
