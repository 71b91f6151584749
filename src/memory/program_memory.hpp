// Memory that is the host's for certain, told by the address alone: the program's image and its heap up to the break,
// and what is in use of this thread's own stack. The small values that programs reduce step by step mostly lie there.
#pragma once
#include <atomic>
#include <cstdint>

namespace crimp {

inline void* no_break = nullptr;

// The program's image, whose headers lie in its first page, and the heap, which follows it. Known from the first
// question on; before, nothing lies there.
struct ProgramImage {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<void* const*> end{&no_break};  // where the break is kept
  __attribute__((always_inline)) bool holds(const void* at) const noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    return address < reinterpret_cast<std::uintptr_t>(*end.load(std::memory_order_acquire)) &&
           address >= begin.load(std::memory_order_relaxed);
  }
};
extern constinit ProgramImage program_image;

// Of both, where one lies outside of the image. A thread's first call asks where its stack ends, which for the first
// thread reads /proc/self/maps.
bool in_image_or_stack(const void*, const void*) noexcept;

// Of both. False: not known. A nanosecond or a few; inline, because every call that passes asks. Never throws.
__attribute__((always_inline)) inline bool in_program_memory(const void* one, const void* other) noexcept {
  return (program_image.holds(one) && program_image.holds(other)) || in_image_or_stack(one, other);
}

}  // namespace crimp
