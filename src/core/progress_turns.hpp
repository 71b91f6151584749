// Turns that MPI is given between two pieces of a rank's work (Transport::progress()), so that exchanges under way move
// on. Where processes share cores a turn may be a whole time slice, or several: MPI gives the core away
// (mpi_yield_when_idle) to others that may only wait. Work would then take many times as long as it does, and what a
// call waits for its network would be taken for work. So what is given away is no more than a ninth of the time.
#pragma once
#include <time.h>

#include <chrono>
#include <optional>

#include "core/clock.hpp"

namespace crimp {

class ProgressTurns {
 public:
  bool due(Clock::time_point now) const { return now >= next_; }
  // Whether took() of the next turn should be told for how long of it the thread has had a core: that takes a system
  // call to find out, and most turns are too short to give a core away.
  bool doubts() const { return doubts_; }
  void took(Clock::time_point begin, Clock::time_point end, std::optional<Clock::duration> worked) {
    const Clock::duration took = end - begin;
    doubts_ = took >= kSlice;  // MPI may as well have copied what has come, or summed it
    if (doubts_ && worked && *worked < took / 2) next_ = end + kWork * (took - *worked);
  }

 private:
  static constexpr std::chrono::microseconds kSlice{500};  // Linux' time slices are longer
  static constexpr int kWork = 8;                          // times as long
  Clock::time_point next_;
  bool doubts_ = false;
};

inline ProgressTurns& turns_of_this_thread() {
  static constinit thread_local ProgressTurns turns;
  return turns;
}

inline Clock::duration time_of_this_thread() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// Takes one where it is due.
template <class Turn>
void take_turn(const Turn& turn) {
  ProgressTurns& turns = turns_of_this_thread();
  const auto begin = Clock::now();
  if (!turns.due(begin)) return;
  std::optional<Clock::duration> worked;
  if (turns.doubts()) worked = -time_of_this_thread();
  turn();
  if (worked) *worked += time_of_this_thread();
  turns.took(begin, Clock::now(), worked);
}

}  // namespace crimp
