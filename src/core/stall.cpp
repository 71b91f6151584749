#include "core/stall.hpp"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>

namespace crimp {
namespace {

std::atomic<std::int64_t> patience_s{10};

}  // namespace

void set_stall(int seconds) { patience_s.store(seconds, std::memory_order_relaxed); }

bool StallWatch::due() noexcept {
  if (said_) return false;
  if (!began_) {
    began_ = true;
    begin_ = now_();
    return false;
  }
  std::int64_t patience = patience_s.load(std::memory_order_relaxed);
  if (patience == 0 || now_() - begin_ < std::chrono::seconds(patience)) return false;
  said_ = true;
  return patience_s.compare_exchange_strong(patience, 2 * patience,
                                            std::memory_order_relaxed);  // of several threads one says it
}

void StallWatch::say(int rank, int size, const std::string& what) const {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_() - begin_).count();
  log(LogLevel::warn, "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has waited " +
                          std::to_string(waited) + " s " + what);
}

// The guards that live, and the thread that looks at them. Leaked: it may look while the process ends.
struct Waits {
  std::mutex mutex;
  StallGuard* first = nullptr;
  bool started = false;

  static Waits& get() {
    static auto& waits = *new Waits;
    return waits;
  }

  void start() {
    started = true;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    pthread_create(
        &thread, &attributes, [](void* waits) { return static_cast<Waits*>(waits)->look(); }, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
  }

  void* look() {
    const timespec half_a_second{0, 500'000'000};
    for (;; nanosleep(&half_a_second, nullptr)) {
      const std::lock_guard lock(mutex);
      for (StallGuard* g = first; g; g = g->next_)
        g->watch_.look(g->rank_, g->size_, [g] { return g->ask_(g->what_); });
    }
    return nullptr;
  }
};

void StallGuard::enter() noexcept {
  watch_.look(rank_, size_, [] { return std::string(); });  // begins now
  Waits& waits = Waits::get();
  const std::lock_guard lock(waits.mutex);
  if (!waits.started) waits.start();
  next_ = waits.first;
  if (next_) next_->before_ = this;
  waits.first = this;
}

StallGuard::~StallGuard() {
  Waits& waits = Waits::get();
  const std::lock_guard lock(waits.mutex);
  (before_ ? before_->next_ : waits.first) = next_;
  if (next_) next_->before_ = before_;
}

}  // namespace crimp
