#include "memory/workers.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace crimp;

TEST_SUITE("workers") {
  TEST_CASE("every part runs once and the parts see the number of threads") {
    for (const int threads : {-1, 0, 1, 2, 3, 7}) {
      Workers workers(threads);
      CHECK(workers.threads() == (threads < 1 ? 1 : threads));
      for (int round = 0; round < 50; ++round) {
        std::vector<int> count(
            static_cast<std::size_t>(workers.threads()));  // one writer each, so that a second one is a race
        std::atomic<int> wrong{0};
        workers.run([&](int part, int parts) {
          ++count[static_cast<std::size_t>(part)];
          if (parts != workers.threads()) ++wrong;
        });
        CHECK(wrong == 0);
        CHECK(count == std::vector<int>(count.size(), 1));
      }
    }
  }

  TEST_CASE("the caller runs part 0") {
    Workers workers(3);
    std::thread::id first;
    workers.run([&](int part, int) {
      if (part == 0) first = std::this_thread::get_id();
    });
    CHECK(first == std::this_thread::get_id());
  }

  TEST_CASE("what the caller's part throws leaves when the others are done, and the workers go on") {
    Workers workers(3);
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> ended{0};
      const auto work = [&](int part, int) {
        if (part == 0) throw std::runtime_error("no");
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++ended;
      };
      CHECK_THROWS_AS(workers.run(work), std::runtime_error);
      CHECK(ended == 2);
    }
  }

  TEST_CASE("several threads may call run at once and each gets all of its parts") {
    Workers workers(3);
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    for (int c = 0; c < 4; ++c)
      callers.emplace_back([&] {
        for (int round = 0; round < 200; ++round) {
          int count[3] = {};
          workers.run([&](int part, int) { ++count[part]; });
          for (const int n : count) wrong += n != 1;
        }
      });
    for (auto& t : callers) t.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("no part has the float environment of the thread that made the workers") {
    const int before = std::fegetround();
    std::fesetround(FE_UPWARD);
    Workers workers(3);
    std::fesetround(before);
    std::atomic<int> wrong{0};
    workers.run([&](int, int) { wrong += std::fegetround() != FE_TONEAREST; });
    CHECK(wrong == 0);
  }

  TEST_CASE("workers that never ran end at once") {
    for (int i = 0; i < 20; ++i) Workers workers(4);
  }
}
