// Says that this rank waits for others: a rank that never comes otherwise lets the job hang without a word. Only a line, on the rank that
// waits; nothing is decided by it.
#pragma once
#include <chrono>
#include <string>

#include "core/log.hpp"

namespace crimp {

// CRIMP_STALL_S: how long a wait is before a line is said; 0: none ever is. Process-wide; after each line it doubles, so that what only is slow is
// quiet soon.
void set_stall(int seconds);

// One wait. Not for several threads.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit StallWatch(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // To be called again and again while waiting; looks at the clock every few times. Where this wait is too long it says so once:
  // "rank R of N has waited 10 s <what()>", what() being asked for then only.
  template <class What>
  void look(int rank, int size, What what) noexcept {
    if (++looks_ % kEvery || !due()) return;
    logged("a rank waits", [&] { say(rank, size, what()); });
  }

 private:
  static constexpr unsigned kEvery = 16;
  bool due() noexcept;
  void say(int rank, int size, const std::string& what) const;
  Clock::time_point (*now_)();
  Clock::time_point begin_{};
  unsigned looks_ = 0;
  bool began_ = false, said_ = false;
};

}  // namespace crimp
