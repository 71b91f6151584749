// A shadow of device memory, for programs whose kernels were compiled with -fsanitize=thread and linked without its
// runtime (shadow.cpp stands for that): what each block of a launch reads and writes there. Two blocks that touch the
// same byte, one of them writing, and not both by atomics, are reported, whatever order they ran in. Nothing orders the
// blocks of a launch; that fences and flags in memory could is not modelled.
//
// Reads by code that was not compiled so, as the C library's, are not seen.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

struct Shadow {
  void (*launch)();                          // another one begins
  void (*atomic)(const void*, std::size_t);  // a lane's
};
// Set by shadow.cpp where a program has it.
inline const Shadow* shadow = nullptr;
std::uint64_t shadowed_bytes();  // touched so far, by loads and stores that were seen
std::uint64_t moved_bytes();     // the same, but in a launch each byte once read and once written: caches have the rest

}  // namespace simt
