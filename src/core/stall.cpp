#include "core/stall.hpp"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/blocked_signals.hpp"

namespace crimp {
namespace {

std::atomic<std::int64_t> patience_s{10};

}  // namespace

void set_stall(int seconds) { patience_s.store(seconds, std::memory_order_relaxed); }

void say_waiting(const std::string& line) {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&room, 1, 0) == 0) return;
  log(LogLevel::warn, line);
}

bool StallWatch::due() noexcept {
  if (said_) return false;
  std::int64_t patience = patience_s.load(std::memory_order_relaxed);
  if (patience == 0) return false;
  const Clock::duration longest = std::min(std::chrono::milliseconds(1000), std::chrono::milliseconds(500 * patience));
  const auto now = now_();
  if (std::exchange(began_, true)) waited_ += std::min(now - looked_, longest);
  looked_ = now;
  if (waited_ < std::chrono::seconds(patience)) return false;
  said_ = true;
  return patience_s.compare_exchange_strong(patience, 2 * patience,
                                            std::memory_order_relaxed);  // of several threads one says it
}

std::string StallWatch::text(int rank, int size, const std::string& what) const {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(waited_).count();
  return "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has waited " + std::to_string(waited) +
         " s " + what;
}

std::string StallWatch::line(int rank, int size, const std::string& what) {
  return due() ? text(rank, size, what) : std::string();
}

namespace {

// A thread's wait.
struct Wait {
  int rank = 0, size = 0;
  std::string what;
  std::optional<StallWatch> watch;  // while there is a guard
  Wait* next = nullptr;
};
// The waits of all threads, and the thread that looks at them while there are any. Leaked: it may look while the
// process ends.
struct Waits {
  std::mutex mutex;
  Wait* first = nullptr;
  bool started = false;

  static Waits& get() {
    static auto& waits = *new Waits;
    return waits;
  }

  void start() {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    const BlockedSignals blocked;
    pthread_t thread;
    started = pthread_create(
                  &thread, &attributes, [](void* waits) { return static_cast<Waits*>(waits)->look(); }, this) == 0;
    pthread_attr_destroy(&attributes);
  }

  // A process whose main thread has left by pthread_exit lives as long as its threads: this one ends where nobody has
  // waited for a while.
  void* look() {
    constexpr int kIdle = 4;  // looks
    const timespec half_a_second{0, 500'000'000};
    for (int idle = 0;; nanosleep(&half_a_second, nullptr)) {
      std::vector<std::string> lines;
      {
        const std::lock_guard lock(mutex);
        bool any = false;
        for (Wait* w = first; w; w = w->next) {
          if (!w->watch) continue;
          any = true;
          logged("a rank waits", [&] {
            lines.reserve(lines.size() + 1);
            if (std::string line = w->watch->line(w->rank, w->size, w->what); !line.empty())
              lines.push_back(std::move(line));
          });
        }
        idle = any ? 0 : idle + 1;
        if (idle > kIdle) {
          started = false;
          return nullptr;
        }
      }
      // Not with the lock, for which all that wait would wait where nobody reads what is printed.
      for (const std::string& line : lines) say_waiting(line);
    }
  }
};

void drop(void* of_thread) {
  auto* const wait = static_cast<Wait*>(of_thread);
  Waits& waits = Waits::get();
  {
    const std::lock_guard lock(waits.mutex);
    Wait** at = &waits.first;
    while (*at != wait) at = &(*at)->next;
    *at = wait->next;
  }
  delete wait;
}

// Of each thread's wait; as in memory/thread_scratch.cpp no thread_local. Nothing where there is none.
std::optional<pthread_key_t> key() {
  static const std::optional<pthread_key_t> made = [] {
    pthread_key_t key;
    return pthread_key_create(&key, drop) ? std::nullopt : std::optional(key);
  }();
  return made;
}

Wait* of_this_thread() { return key() ? static_cast<Wait*>(pthread_getspecific(*key())) : nullptr; }

}  // namespace

void StallGuard::enter(int rank, int size, std::string what) {
  if (patience_s.load(std::memory_order_relaxed) == 0 || !key()) return;
  Waits& waits = Waits::get();
  Wait* wait = of_this_thread();
  if (!wait) {
    auto made = std::make_unique<Wait>();
    if (pthread_setspecific(*key(), made.get())) return;
    wait = made.release();
    const std::lock_guard lock(waits.mutex);
    wait->next = std::exchange(waits.first, wait);
  }
  const std::lock_guard lock(waits.mutex);
  if (!waits.started) waits.start();
  wait->rank = rank, wait->size = size, wait->what = std::move(what);
  wait->watch.emplace();
  wait->watch->look(rank, size, [] { return std::string(); });  // begins now
}

StallGuard::~StallGuard() {
  Wait* const wait = of_this_thread();
  if (!wait) return;
  const std::lock_guard lock(Waits::get().mutex);
  wait->watch.reset();
}

}  // namespace crimp
