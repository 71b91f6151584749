// Results that outgrow the caches: a store past them spares the processor from reading each line before it is written,
// half of what an ordinary store moves.
#pragma once
#include <cstdint>

namespace crimp {

// Whether a call's result of so many float32 is written like that. Whoever reads shorter ones next may find them in a
// cache of the usual size (docs/design_notes.md has the measurement).
constexpr bool outgrows_caches(std::uint64_t count) {
#if defined(__x86_64__)
  return count >= std::uint64_t{1} << 22;
#else  // a copy would be one more pass, and spare nothing
  return static_cast<void>(count), false;
#endif
}

// to[i] = from[i]. Other threads see it after end_streamed() in the writing one. Where the processor has no such stores
// it is an ordinary copy. Never fails.
void streamed_copy(float* to, const float* from, std::uint64_t count) noexcept;
void end_streamed() noexcept;

}  // namespace crimp
