// Memories that a codec does not add by itself while it reads (FeedbackPolicy::fused() is false). Formulas:
// codec/codec.hpp, FeedbackKind.
#pragma once
#include <cstdint>

#include "codec/payload.hpp"

namespace crimp {

// a[i] = what is encoded of values[i]; a may be memory.out. Final with this are the averages of memory `average`, in
// memory.out; of memory `momentum` the new momentum stands in memory.momentum_out, not masked yet.
void compensate(const FeedbackPolicy&, const float* values, const FeedbackView& memory, std::uint64_t count, float* a);
// After encoding, where memory.out holds a - decoded: memory `momentum` forgets the momentum of what was sent.
void keep(const FeedbackPolicy&, const float* a, const FeedbackView& memory, std::uint64_t count);
// The same where the codec has marked what was sent: u = 0 where a bit of `changed` is set.
void forget(const std::uint64_t* changed, std::uint64_t count, float* u);

}  // namespace crimp
