// Memories that a codec does not add by itself while it reads (MemoryPolicy::fused() is false). Formulas: crimp/codec.hpp, MemoryKind.
#pragma once
#include <cstdint>

#include "crimp/payload.hpp"

namespace crimp {

// a[i] = what is encoded of values[i]; u[i] = the momentum before masking (memory `momentum`, else untouched). Memory `average` is final
// with this: its new averages go to memory.out, which may be a.
void compensate(const MemoryPolicy&, const float* values, const Feedback& memory, std::uint64_t count, float* a, float* u);
// After encoding, where memory.out holds a - decoded: keeps the momentum of what was not sent.
void keep(const MemoryPolicy&, const float* a, const float* u, const Feedback& memory, std::uint64_t count);

}  // namespace crimp
