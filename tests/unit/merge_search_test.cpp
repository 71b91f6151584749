// The timeline of a step and its optimum: by hand, against all 2^(N-1) cuts, and as long as the literature's nets.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <random>

#include "schedule/merge_search.hpp"

using namespace crimp;

namespace {

constexpr double kCall = 1e-3, kByte = 1e-9;
double line(std::uint64_t bytes) { return kCall + kByte * static_cast<double>(bytes); }

Cuts cuts_of(std::uint32_t bits, std::uint32_t tensors) {
  Cuts cuts;
  for (std::uint32_t i = 1; i < tensors; ++i)
    if (bits >> (i - 1) & 1) cuts.push_back(i);
  return cuts;
}

}  // namespace

TEST_SUITE("merge_search") {
  TEST_CASE("a step by hand") {
    // Ready after 1, 2 and 10 ms, 1 MB each: a call takes 1 ms and 1 ms for each MB.
    const Timeline step{{1e-3, 2e-3, 10e-3}, {1'000'000, 1'000'000, 1'000'000}, line};
    CHECK(step.end_s({}) == doctest::Approx(14e-3));          // 10 + 1 + 3
    CHECK(step.end_s(Cuts{1, 2}) == doctest::Approx(12e-3));  // 1..3, 3..5, 10..12
    CHECK(step.end_s(Cuts{2}) == doctest::Approx(12e-3));     // 2..5, 10..12
    CHECK(step.end_s(Cuts{1}) == doctest::Approx(13e-3));     // 1..3, 10..13
    CHECK(best_cuts(step) == Cuts{2});                        // as early in fewer calls
    CHECK(Timeline{{}, {}, line}.end_s({}) == 0);
    CHECK(best_cuts({{}, {}, line}).empty());
    CHECK(best_cuts({{5}, {1}, line}).empty());
  }

  TEST_CASE("everything at once is one call; nothing to pay for a call is a call for each") {
    const std::vector<std::uint64_t> bytes(6, 1'000'000);
    CHECK(best_cuts({std::vector<double>(6, 0.0), bytes, line}).empty());
    const Timeline apart{{1, 2, 3, 4, 5, 6}, bytes, [](std::uint64_t b) { return kByte * static_cast<double>(b); }};
    CHECK(apart.end_s(best_cuts(apart)) == doctest::Approx(6.001));
  }

  TEST_CASE("a tensor that is ready before one ahead of it waits for it") {
    const Timeline step{{9e-3, 1e-3}, {1000, 1000}, [](std::uint64_t) { return kCall; }};
    CHECK(step.end_s(Cuts{1}) == doctest::Approx(11e-3));
    CHECK(step.end_s({}) == doctest::Approx(10e-3));
  }

  TEST_CASE("the optimum is that of all cuts") {
    std::mt19937 generator(1);
    const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
    for (int net = 0; net < 300; ++net) {
      const std::uint32_t n = 1 + random() % (net < 20 ? 16 : 11);
      Timeline step;
      double ready = 0;
      const double gap = std::pow(10, -4 + 3e-9 * random());  // what a tensor more takes to compute
      for (std::uint32_t i = 0; i < n; ++i) {
        ready += gap * (random() % 8);
        step.ready_s.push_back(net % 3 ? ready : gap * (random() % 100));  // in order or not
        step.bytes.push_back(1 + random() % 20'000'000);
      }
      // A line, steps, and one with a threshold.
      if (net % 2) step.call_s = line;
      else
        step.call_s = [](std::uint64_t b) {
          return (b > 5'000'000 ? 4e-3 : 1e-3) + 1e-3 * static_cast<double>(b / 3'000'000);
        };
      double least = INFINITY;
      for (std::uint32_t bits = 0; bits < 1u << (n - 1); ++bits) least = std::min(least, step.end_s(cuts_of(bits, n)));
      CAPTURE(net);
      CHECK(step.end_s(best_cuts(step)) == least);
    }
  }

  // As many tensors as nets that merge schedulers are measured with.
  TEST_CASE("nets of the literature take no time") {
    for (const std::size_t tensors : {161, 207, 314, 399}) {
      std::mt19937 random(static_cast<unsigned>(tensors));
      Timeline step{{}, {}, line};
      for (std::size_t i = 0; i < tensors; ++i) {
        step.ready_s.push_back(1e-4 * static_cast<double>(i));
        step.bytes.push_back(4u << random() % 22);
      }
      const auto begin = std::chrono::steady_clock::now();
      const Cuts cuts = best_cuts(step);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      MESSAGE(tensors << " tensors: " << cuts.size() + 1 << " groups in " << took.count() << " ms");
      CHECK(step.end_s(cuts) <= step.end_s({}));
    }
  }
}
