#include "memory/program_memory.hpp"

#include <elf.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

extern "C" {
extern void* __curbrk __attribute__((weak));  // NOLINT(bugprone-reserved-identifier): glibc's
}

namespace crimp {
namespace {

struct Stack {
  std::uintptr_t low = 0, high = 0;
  bool known = false;
};
constinit thread_local Stack stack __attribute__((tls_model("initial-exec")));

__attribute__((noinline)) void find_stack() noexcept {
  const int before = errno;
  stack.known = true;  // where this fails it would again
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
    void* low = nullptr;
    std::size_t bytes = 0;
    if (::pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
      stack.low = reinterpret_cast<std::uintptr_t>(low);
      stack.high = stack.low + bytes;
    }
    ::pthread_attr_destroy(&attributes);
  }
  errno = before;
}

// glibc keeps the break in a variable, which is null before the first use of sbrk. sbrk(0) itself costs a system call
// or two, 270 ns, where UCX is, and MPICH with it: where there is another C library it is asked once, and what the heap
// grows by later is not known to be the program's.
__attribute__((noinline)) void find_image() noexcept {
  static void* const first_break = ::sbrk(0);
  program_image.begin.store(::getauxval(AT_PHDR), std::memory_order_relaxed);
  if (program_image.begin.load(std::memory_order_relaxed) != 0)
    program_image.end.store(&__curbrk ? &__curbrk : &first_break, std::memory_order_release);
}

__attribute__((always_inline)) inline bool in_live_stack(std::uintptr_t at, std::uintptr_t frame) noexcept {
  if (!stack.known) find_stack();
  // A program may have switched to a stack that it made: then this frame is not in the thread's own.
  return at > frame && at < stack.high && frame >= stack.low;
}

}  // namespace

constinit ProgramImage program_image;

bool in_image_or_stack(const void* one, const void* other) noexcept {
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (program_image.end.load(std::memory_order_relaxed) == &no_break) find_image();
  const auto in_live_stack_of = [frame](const void* at) {
    return in_live_stack(reinterpret_cast<std::uintptr_t>(at), frame);
  };
  return (program_image.holds(one) || in_live_stack_of(one)) && (program_image.holds(other) || in_live_stack_of(other));
}

}  // namespace crimp
