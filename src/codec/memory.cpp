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

void compensate(const MemoryPolicy& policy, const float* values, const Feedback& memory, std::uint64_t count, float* a, float* u) {
  if (policy.kind == MemoryKind::residual) {
    for (std::uint64_t i = 0; i < count; ++i) a[i] = values[i] + policy.decay * memory.in[i];
  } else if (policy.kind == MemoryKind::average) {
    const float fresh = 1.0f - policy.momentum;
    for (std::uint64_t i = 0; i < count; ++i) a[i] = policy.momentum * memory.in[i] + fresh * values[i];
    for (std::uint64_t i = 0; a != memory.out && i < count; ++i) memory.out[i] = a[i];
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      u[i] = policy.momentum * memory.momentum_in[i] + values[i];
      a[i] = memory.in[i] + u[i];
    }
  }
}

void keep(const MemoryPolicy& policy, const float* a, const float* u, const Feedback& memory, std::uint64_t count) {
  if (policy.kind != MemoryKind::momentum) return;
  for (std::uint64_t i = 0; i < count; ++i) memory.momentum_out[i] = memory.out[i] == a[i] ? u[i] : 0.0f;
}

}  // namespace crimp
