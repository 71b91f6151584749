#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ucontext works everywhere but asks the kernel for the signal mask at every switch, which is most of the time of a
// barrier.
#if defined(__x86_64__)
#define SIMT_SWITCH 1
extern "C" void simt_switch(void** from, void* to);
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch,.-simt_switch
)");
#else
#include <ucontext.h>
#endif

namespace simt {
namespace {

constexpr std::size_t kPage = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStack = 256 << 10;
#else
constexpr std::size_t kStack = 64 << 10;
#endif

thread_local Fiber* running = nullptr;
thread_local void* caller_sp = nullptr;  // of resume(): a stack pointer, or a ucontext_t
#if defined(__SANITIZE_ADDRESS__)
thread_local const void* caller_bottom = nullptr;
thread_local std::size_t caller_size = 0;
#endif

}  // namespace

Fiber::Fiber() {
  void* p = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<unsigned char*>(p);
  mprotect(memory_, kPage, PROT_NONE);
}

Fiber::~Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(memory_ + kPage, kStack);
#endif
#ifndef SIMT_SWITCH
  delete static_cast<ucontext_t*>(context_);
#endif
  munmap(memory_, kPage + kStack);
}

bool Fiber::in_guard(const void* p) const {
  const auto at = reinterpret_cast<std::uintptr_t>(p), low = reinterpret_cast<std::uintptr_t>(memory_);
  return at >= low && at < low + kPage;
}

void Fiber::body() {
  Fiber* self = running;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &caller_bottom, &caller_size);
#endif
  self->entry_();
  std::abort();
}

void Fiber::start(void (*entry)()) {
  entry_ = entry;
  fake_stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  if (unfinished_) ASAN_UNPOISON_MEMORY_REGION(memory_ + kPage, kStack);  // what an abandoned lane left
#endif
  unfinished_ = true;
#ifdef SIMT_SWITCH
  auto* top = reinterpret_cast<void**>(memory_ + kPage + kStack) - 2;
  *--top = nullptr;                                // where body would return to
  *--top = reinterpret_cast<void*>(&Fiber::body);  // what the first switch returns to
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  sp_ = top;
#else
  if (!context_) context_ = new ucontext_t;
  auto* context = static_cast<ucontext_t*>(context_);
  getcontext(context);
  context->uc_stack.ss_sp = memory_ + kPage;
  context->uc_stack.ss_size = kStack;
  context->uc_link = nullptr;
  makecontext(context, &Fiber::body, 0);
#endif
}

void Fiber::resume() {
  running = this;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, memory_ + kPage, kStack);
#endif
#ifdef SIMT_SWITCH
  simt_switch(&caller_sp, sp_);
#else
  ucontext_t here;
  caller_sp = &here;
  swapcontext(&here, static_cast<ucontext_t*>(context_));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  running = nullptr;
}

void Fiber::leave([[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack_, caller_bottom, caller_size);
#endif
#ifdef SIMT_SWITCH
  simt_switch(&sp_, caller_sp);
#else
  swapcontext(static_cast<ucontext_t*>(context_), static_cast<ucontext_t*>(caller_sp));
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom, &caller_size);
#endif
}

void Fiber::suspend() { running->leave(false); }

void Fiber::finish() {
  running->unfinished_ = false;
  running->leave(true);
  std::abort();
}

}  // namespace simt
