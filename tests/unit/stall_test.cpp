#include "core/stall.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>

#include "support/no_memory.hpp"
#include "support/sanitized.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("stall") {
  namespace {

  Clock::time_point now;
  Clock::time_point at() { return now; }

  // Looks at one wait every 100 ms for so long; how often it was asked what it waits for.
  int said_in(int seconds) {
    StallWatch watch(at);
    int said = 0;
    const auto look = [&] {
      watch.look(1, 4, [&] { return ++said, std::string("in a test of the line that it says"); });
    };
    look();
    for (int i = 0; i < 10 * seconds; ++i) {
      now += std::chrono::milliseconds(100);
      look();
    }
    return said;
  }

  using Seconds = std::chrono::duration<double>;
  std::string what() { return "under guard, in a test"; }

  // A guard that lives so long; how long it may have lived.
  Seconds guarded(int tenths, Clock::time_point begun = Clock::now()) {
    {
      const StallGuard guard(0, 2, what);
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * tenths));
    }
    return Clock::now() - begun;
  }

  // On a busy machine what should be brief may last a second: then it is done again.
  template <class Work>
  void until_brief(const Work& longest) {
    do set_stall(1);
    while (longest() >= Seconds(1));
  }

  }  // namespace

  TEST_CASE("a wait is told once, and the next when it is twice as long") {
    set_stall(10);
    CHECK(said_in(9) == 0);
    CHECK(said_in(1000) == 1);
    CHECK(said_in(19) == 0);
    CHECK(said_in(21) == 1);
    CHECK(said_in(39) == 0);
    CHECK(said_in(41) == 1);
  }

  TEST_CASE("the time for which this rank was stopped is no wait of its own") {
    set_stall(10);
    StallWatch watch(at);
    const auto line = [&](std::chrono::milliseconds later) {
      now += later;
      return watch.line(1, 4, "in a test");
    };
    const std::chrono::milliseconds look(100);
    CHECK(line(look) == "");
    for (int i = 0; i < 5; ++i) CHECK(line(std::chrono::hours(1)) == "");  // 1 s each
    for (int i = 0; i < 49; ++i) CHECK(line(look) == "");
    CHECK(line(look) == "rank 1 of 4 has waited 10 s in a test");
    CHECK(line(std::chrono::hours(1)) == "");
    set_stall(10);
  }

  TEST_CASE("0: never") {
    set_stall(0);
    CHECK(said_in(100000) == 0);
    set_stall(1);
    CHECK(said_in(2) == 1);
  }

  TEST_CASE("a thread looks at guarded waits, of several threads too") {
    const auto wait = [](int tenths) {
      const auto begun = Clock::now();
      for (int i = 0; i < 3; ++i) const StallGuard brief(0, 2, what);
      return guarded(tenths, begun);
    };
    until_brief([&] {
      std::array<Seconds, 3> lived;
      std::thread brief([&] { lived[0] = wait(3); }), other([&] { lived[1] = wait(5); });
      lived[2] = wait(1);
      brief.join(), other.join();
      return *std::max_element(lived.begin(), lived.end());
    });
    CHECK(said_in(1) == 1);  // still after 1 s, which doubles where a line is said
    set_stall(1);
    std::thread longer([&] { wait(30); });
    wait(30);
    longer.join();
    CHECK(said_in(1) == 0);  // one after 1 s, and after 2 s perhaps the other
    CHECK(said_in(4) == 1);
    set_stall(10);
  }

  TEST_CASE("a guard that was left by longjmp ends where its thread waits again") {
    until_brief([] {
      const auto begun = Clock::now();
      alignas(StallGuard) std::byte left[sizeof(StallGuard)];
      new (left) StallGuard(0, 2, what);  // nothing ends it
      std::memset(left, 0x41, sizeof left);
      Seconds longest = guarded(1, begun);
      for (int i = 0; i < 11; ++i) longest = std::max(longest, guarded(1));
      return longest;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    CHECK(said_in(1) == 1);
    set_stall(10);
  }

  TEST_CASE("a thread that has never waited may have no memory" * doctest::skip(kSanitized)) {
    CHECK(status_without_memory([] { const StallGuard guard(0, 2, [] { return std::string("in a test"); }); }) == 0);
  }

  TEST_CASE("what is said may fail") {
    set_stall(1);
    StallWatch watch(at);
    for (int i = 0; i < 1000; ++i, now += std::chrono::seconds(1))
      watch.look(0, 2, []() -> std::string { throw std::bad_alloc(); });
    set_stall(10);
  }
}
