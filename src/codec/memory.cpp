#include "codec/memory.hpp"

namespace crimp {

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::none: return "none";
    case MemoryKind::residual: return "residual";
    case MemoryKind::momentum: return "momentum";
    case MemoryKind::average: return "average";
  }
  return "?";
}

void compensate(const MemoryPolicy& policy, const float* values, const Feedback& memory, std::uint64_t count, float* a) {
  const auto [in, out, momentum_in, momentum_out] = memory;
  if (policy.kind == MemoryKind::residual) {
    for (std::uint64_t i = 0; i < count; ++i) a[i] = values[i] + policy.decay * in[i];
  } else if (policy.kind == MemoryKind::average) {
    const float fresh = 1.0f - policy.momentum;
    for (std::uint64_t i = 0; i < count; ++i) a[i] = policy.momentum * in[i] + fresh * values[i];
    for (std::uint64_t i = 0; a != out && i < count; ++i) out[i] = a[i];
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      const float u = policy.momentum * momentum_in[i] + values[i];
      a[i] = in[i] + u;
      momentum_out[i] = u;
    }
  }
}

void keep(const MemoryPolicy& policy, const float* a, const Feedback& memory, std::uint64_t count) {
  if (policy.kind != MemoryKind::momentum) return;
  const float* const left = memory.out;
  float* const u = memory.momentum_out;
  for (std::uint64_t i = 0; i < count; ++i) u[i] = left[i] == a[i] ? u[i] : 0.0f;
}

}  // namespace crimp
