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

// glibc's sbrk(0) gives that variable, which is null before the first use. UCX, and MPICH with it, patches sbrk to make
// a system call or two: 270 ns.
std::uintptr_t program_break() noexcept {
  void* const known = &__curbrk ? __curbrk : nullptr;
  return reinterpret_cast<std::uintptr_t>(known ? known : ::sbrk(0));
}

__attribute__((always_inline)) inline bool in_image_or_heap(std::uintptr_t at) noexcept {
  // The program's headers lie in the first page of its image, and the heap follows the image.
  static const std::uintptr_t image = ::getauxval(AT_PHDR);
  return at >= image && image != 0 && at < program_break();
}

__attribute__((always_inline)) inline bool in_live_stack(std::uintptr_t at, std::uintptr_t frame) noexcept {
  if (!stack.known) find_stack();
  // A program may have switched to a stack that it made: then this frame is not in the thread's own.
  return at > frame && at < stack.high && frame >= stack.low;
}

}  // namespace

bool in_program_memory(const void* one, const void* other) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(one), second = reinterpret_cast<std::uintptr_t>(other);
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return (in_image_or_heap(first) || in_live_stack(first, frame)) &&
         (in_image_or_heap(second) || in_live_stack(second, frame));
}

}  // namespace crimp
