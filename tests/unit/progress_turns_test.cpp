#include "core/progress_turns.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace crimp;
using namespace std::chrono_literals;

TEST_SUITE("progress_turns") {
  constexpr Clock::time_point kNoon{12h};

  TEST_CASE("short turns are always due, and nobody asks how much of them was work") {
    ProgressTurns turns;
    CHECK(turns.due(kNoon));
    CHECK(!turns.doubts());
    turns.took(kNoon, kNoon + 499us, {});
    CHECK(turns.due(kNoon + 499us));
    CHECK(!turns.doubts());
  }

  TEST_CASE("behind turns in which the core was given away none is due until eight times as long has been worked") {
    ProgressTurns turns;
    turns.took(kNoon, kNoon + 3ms, {});
    CHECK(turns.due(kNoon + 3ms));
    CHECK(turns.doubts());
    turns.took(kNoon + 10ms, kNoon + 13ms, 1ms);
    CHECK(!turns.due(kNoon + 13ms));
    CHECK(!turns.due(kNoon + 29ms - 1ns));
    CHECK(turns.due(kNoon + 29ms));
    CHECK(turns.doubts());
    turns.took(kNoon + 30ms, kNoon + 30ms + 10us, 10us);
    CHECK(turns.due(kNoon + 30ms + 10us));
    CHECK(!turns.doubts());
  }

  TEST_CASE("long turns in which MPI works are always due") {
    ProgressTurns turns;
    turns.took(kNoon, kNoon + 3ms, {});
    turns.took(kNoon + 10ms, kNoon + 13ms, 1500us);
    CHECK(turns.due(kNoon + 13ms));
    CHECK(turns.doubts());
  }

  TEST_CASE("a turn in which the thread sleeps again and again is left out") {
    int taken = 0;
    std::thread fresh([&] {
      const auto turn = [&] {
        ++taken;
        std::this_thread::sleep_for(1s);
      };
      for (int i = 0; i < 3; ++i) take_turn(turn);  // the third is not due for 8 s
    });
    fresh.join();
    CHECK(taken == 2);
  }
}
