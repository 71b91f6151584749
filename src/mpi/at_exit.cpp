#include "mpi/at_exit.hpp"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "core/clock.hpp"

// Of the C++ ABI, as atexit(), but that one can be taken back by its token.
extern "C" {
int __cxa_atexit(void (*handler)(void*), void* argument, void* token);
void __cxa_finalize(void* token);
}

namespace crimp {
namespace {

constexpr std::chrono::milliseconds kAside{2000};    // an exit takes a few
constexpr std::chrono::milliseconds kPatience{200};  // for what a thread is doing, which takes a few

constinit std::atomic<bool> ending{false};
constinit std::atomic<int> at_work{0};  // threads, without those that stand aside
constinit thread_local bool of_ours = false, replacing = false;
constinit std::atomic<const bool*> ending_thread{nullptr};  // its of_ours
constinit std::mutex mutex;
constinit std::atomic<pid_t> process{0};
char token;

void nap() {
  const timespec time{0, 200'000};
  ::nanosleep(&time, nullptr);
}

void at_exit(void*) {
  if (replacing || process != ::getpid()) return;  // a child of fork() has none of the threads
  ending_thread = &of_ours;
  ending = true;
  for (const auto begun = Clock::now(); at_work > 0 && Clock::now() - begun < kPatience;) nap();
}

}  // namespace

void expect_exit() noexcept {
  const std::lock_guard lock(mutex);
  replacing = true;
  __cxa_finalize(&token);
  replacing = false;
  process = ::getpid();
  __cxa_atexit(at_exit, nullptr, &token);
}

AtWork::AtWork() noexcept {
  of_ours = true;
  ++at_work;
  stand_aside();
}

AtWork::~AtWork() {
  --at_work;
  of_ours = false;
}

void stand_aside() noexcept {
  if (!ending || !of_ours) return;  // in one order with at_work, of which the other side looks first at the latter
  while (ending) {
    --at_work;
    const auto begun = Clock::now();
    while (ending && Clock::now() - begun < kAside) nap();
    ending = false;
    ++at_work;  // then looks again: exit() may just have come here once more
  }
}

void go_on() noexcept {
  if (ending.load(std::memory_order_relaxed) && ending_thread == &of_ours) ending = false;
}

}  // namespace crimp
