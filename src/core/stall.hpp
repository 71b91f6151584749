// Says that this rank waits for others: a rank that never comes otherwise lets the job hang without a word. Only a
// line, on the rank that waits; nothing is decided by it.
//
// A rank that was stopped meanwhile (SIGSTOP, a debugger) has not waited for that time: between two looks a second
// counts at most, or half of CRIMP_STALL_S where that is less.
#pragma once
#include <string>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace crimp {

// CRIMP_STALL_S: how long a wait is before a line is said; 0: none ever is. Process-wide; after each line it doubles,
// so that what only is slow is quiet soon.
void set_stall(int seconds);

// Logged, unless nobody reads standard error: a pipe that is full would make the call wait for its reader.
void say_waiting(const std::string& line);

// One wait. Not for several threads.
class StallWatch {
 public:
  explicit StallWatch(Clock::time_point (*now)() = Clock::now) : now_(now) {}

  // To be called again and again while waiting. Where this wait is too long it says so once: "rank R of N has waited 10
  // s <what()>", what() being asked for then only.
  template <class What>
  void look(int rank, int size, const What& what) noexcept {
    if (due()) logged("a rank waits", [&] { say_waiting(text(rank, size, what())); });
  }
  // The same, for who says it himself; empty: nothing is to be said.
  std::string line(int rank, int size, const std::string& what);

 private:
  bool due() noexcept;
  std::string text(int rank, int size, const std::string& what) const;
  Clock::time_point (*now_)();
  Clock::time_point looked_{};
  Clock::duration waited_{};
  bool began_ = false, said_ = false;
};

// One wait of a thread that cannot look meanwhile: as long as this lives, a thread that all of them share does, twice a
// second. It is started where there is none, with a small stack and the program's signals blocked, and ends where
// nobody has waited for two seconds; where it cannot be started nothing is said. A thread has one at a time. What is
// known of it is no part of the stack, which an error handler may leave by longjmp: then it ends where the thread waits
// again.
class StallGuard {
 public:
  // what: as StallWatch::look(). asked at once.
  template <class What>
  StallGuard(int rank, int size, const What& what) noexcept {
    logged("a rank waits", [&] { enter(rank, size, what()); });
  }
  ~StallGuard();
  StallGuard(const StallGuard&) = delete;
  StallGuard& operator=(const StallGuard&) = delete;

 private:
  static void enter(int rank, int size, std::string what);
};

}  // namespace crimp
