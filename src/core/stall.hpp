// Says that this rank waits for others: a rank that never comes otherwise lets the job hang without a word. Only a
// line, on the rank that waits; nothing is decided by it.
#pragma once
#include <chrono>
#include <string>

#include "core/log.hpp"

namespace crimp {

// CRIMP_STALL_S: how long a wait is before a line is said; 0: none ever is. Process-wide; after each line it doubles,
// so that what only is slow is quiet soon.
void set_stall(int seconds);

// One wait. Not for several threads.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StallWatch(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // To be called again and again while waiting. Where this wait is too long it says so once: "rank R of N has waited 10
  // s <what()>", what() being asked for then only.
  template <class What>
  void look(int rank, int size, const What& what) noexcept {
    if (due()) logged("a rank waits", [&] { say(rank, size, what()); });
  }

 private:
  bool due() noexcept;
  void say(int rank, int size, const std::string& what) const;
  Clock::time_point (*now_)();
  Clock::time_point begin_{};
  bool began_ = false, said_ = false;
};

// One wait of a thread that cannot look meanwhile: as long as this lives, a thread that all of them share does, twice a
// second. It is started at the first one, with a small stack and all signals blocked, and stays; where it cannot be
// started nothing is said. what() is called there and must outlive this.
class StallGuard {
 public:
  template <class What>
  StallGuard(int rank, int size, const What& what) noexcept
      : rank_(rank), size_(size), what_(&what), ask_([](const void* w) { return (*static_cast<const What*>(w))(); }) {
    enter();
  }
  ~StallGuard();
  StallGuard(const StallGuard&) = delete;
  StallGuard& operator=(const StallGuard&) = delete;

 private:
  friend struct Waits;
  void enter() noexcept;
  int rank_, size_;
  const void* what_;
  std::string (*ask_)(const void*);
  StallWatch watch_;
  StallGuard *before_ = nullptr, *next_ = nullptr;
};

}  // namespace crimp
