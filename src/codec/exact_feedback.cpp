#include "codec/exact_feedback.hpp"

#include <algorithm>
#include <cmath>

#include "codec/feedback.hpp"
#include "core/convert.hpp"

namespace crimp {

double clip_gain(Dtype type, const void* values, std::uint64_t count, double most) {
  constexpr std::uint64_t kBlock = 1024;
  double squares = 0;
  alignas(64) float block[kBlock];
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::uint64_t n = std::min(kBlock, count - at);
    const char* const from = static_cast<const char*>(values) + at * size_of(type);
    double sums[8] = {};
    if (type == Dtype::f64) {
      const auto* x = reinterpret_cast<const double*>(from);
      for (std::uint64_t i = 0; i < n; ++i) sums[i % 8] += x[i] * x[i];
    } else {
      widen(type, from, block, n);
      for (std::uint64_t i = 0; i < n; ++i)
        sums[i % 8] += static_cast<double>(block[i]) * static_cast<double>(block[i]);
    }
    for (const double sum : sums) squares += sum;
  }
  const double norm = std::sqrt(squares);
  return std::isfinite(norm) && norm > most ? most / norm : 1.0;
}

void compensate_exactly(const FeedbackPolicy& policy, Dtype type, void* values, std::uint64_t count, float* memory,
                        double gain) {
  constexpr std::uint64_t kBlock = 1024;
  float *const v = memory, *const u = memory + count;
  if (!(magnitude(type, values, count) <= 0x1p100)) return;
  if (type == Dtype::f64) {  // only the momentum is float32's
    auto* x = static_cast<double*>(values);
    const double m = static_cast<double>(policy.momentum);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double g = gain * x[i], old = static_cast<double>(u[i]),
                   made = policy.nesterov ? m * (old + g) : m * old + g;
      x[i] = static_cast<double>(v[i]) + (policy.nesterov ? made + g : made);
      u[i] = static_cast<float>(made);
      if (v[i] != 0.0f) v[i] = 0.0f;
    }
    return;
  }
  const float largest = type == Dtype::f16 ? 65504.0f : 0x1p127f;
  alignas(64) float g[kBlock], a[kBlock];
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    const std::uint64_t n = std::min(kBlock, count - at);
    char* const here = static_cast<char*>(values) + at * size_of(type);
    widen(type, here, g, n);
    if (gain != 1.0)
      for (std::uint64_t i = 0; i < n; ++i) g[i] *= static_cast<float>(gain);
    compensate(policy, g, {v + at, v + at, u + at, u + at}, n, a);
    for (std::uint64_t i = 0; i < n; ++i) g[i] = std::clamp(a[i], -largest, largest);
    narrow(type, g, here, n);
    widen(type, here, g, n);
    for (std::uint64_t i = 0; i < n; ++i)
      if (const float rest = a[i] - g[i]; v[at + i] != rest) v[at + i] = rest;  // pages of zeros stay untouched
  }
}

}  // namespace crimp
