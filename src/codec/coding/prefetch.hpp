// Reading ahead of a loop. Bodies of several ranks are decoded in turns of a piece, which is shorter than what a
// processor needs to find their streams by itself: without this, natural's bytes are added at half the speed.
#pragma once
#include <cstdint>

namespace crimp {

// The line that holds the byte `ahead` bytes behind `at`, into the second-level cache (of locality 3: the first); there
// need not be one. always_inline: GCC takes a function that only prefetches for one without effects and drops the calls
// that it has not inlined by then.
template <int locality = 2>
[[gnu::always_inline]] inline void prefetch(const void* at, std::size_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + ahead), 0, locality);
}

}  // namespace crimp
