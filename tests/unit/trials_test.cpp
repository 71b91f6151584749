// How soon and how well trials settle, under noise: against races of all candidates in all rounds.
#include "collective/trials.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "support/thread_transport.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("trials") {
  namespace {

  constexpr std::uint64_t kCount = 1000;
  using Times = std::vector<double>;  // of the candidates, the last one plain MPI's; in ms
  using Noise = double (*)(std::mt19937&);

  const std::vector<Times> kTimes = {{1, 1.02, 1.05, 1.1, 1.15},
                                     {1.1, 1, 1.3, 1.4, 2},
                                     {1.5, 1.2, 1, 1.1, 1.3},
                                     {3, 1.3, 1.2, 1.1, 1},
                                     {1, 1.3, 1.6, 2, 3},
                                     {1.05, 1},
                                     {1.2, 1.1, 1}};
  constexpr Noise kNoises[] = {[](std::mt19937& random) { return std::lognormal_distribution<>(0, 0.1)(random); },
                               [](std::mt19937& random) { return std::lognormal_distribution<>(0, 0.3)(random); },
                               [](std::mt19937& random) {  // every tenth call is interrupted
                                 return std::lognormal_distribution<>(0, 0.15)(random) *
                                        (std::uniform_real_distribution<>()(random) < 0.1 ? 3 : 1);
                               },
                               [](std::mt19937& random) {  // a neighbour comes and goes
                                 return (std::uniform_real_distribution<>()(random) < 0.6 ? 1 : 1.6) *
                                        std::lognormal_distribution<>(0, 0.05)(random);
                               }};

  // All are predicted alike; which one it is says the radix.
  std::vector<Choice> predictions(const Times& times) {
    std::vector<Choice> all;
    for (std::size_t i = 0; i + 1 < times.size(); ++i)
      all.push_back({.carriage = {.algorithm = Algorithm::two_shot, .radix = static_cast<int>(i)},
                     .predicted_s = 1e-3,
                     .plain_s = 1e-3});
    return all;
  }
  std::size_t index(const Choice& choice, const Times& times) {
    return choice.plain ? times.size() - 1 : static_cast<std::size_t>(choice.carriage.radix);
  }

  struct Outcome {
    std::size_t chosen;
    int calls = 0;    // tried
    double cost = 0;  // of these and of all others up to the 256th
  };

  // Until nothing is tried. call_s: what the n-th call of a candidate takes.
  Outcome settle(Trials& trials, Transport& transport, const Times& times,
                 const std::function<double(std::size_t, int)>& call_s) {
    const auto all = predictions(times);
    Outcome outcome{};
    Choice choice = trials.choose(transport, all, kCount);
    for (; choice.trial && outcome.calls < 1000; choice = trials.choose(transport, all, kCount)) {
      const double s = call_s(index(choice, times), outcome.calls++);
      outcome.cost += s;
      trials.took(1e-3 * s, kCount);
    }
    outcome.chosen = index(choice, times);
    outcome.cost += std::max(0, 256 - outcome.calls) * times[outcome.chosen];
    return outcome;
  }

  // 24 rounds of all, the first not counted, and their medians.
  Outcome race(const Times& times, const std::function<double(std::size_t)>& call_s) {
    Outcome outcome{};
    Times medians;
    for (std::size_t i = 0; i < times.size(); ++i) {
      Times counted;
      for (int round = 0; round < 24; ++round, ++outcome.calls) {
        const double s = call_s(i);
        outcome.cost += s;
        if (round > 0) counted.push_back(s);
      }
      std::sort(counted.begin(), counted.end());
      medians.push_back(counted[counted.size() / 2]);
    }
    outcome.chosen = static_cast<std::size_t>(std::min_element(medians.begin(), medians.end()) - medians.begin());
    outcome.cost += (256 - outcome.calls) * times[outcome.chosen];
    return outcome;
  }

  // By the model MPI takes 100 ms and algorithms 10, 50 and 60; in units of 10 ms, the last one MPI's, this is what
  // they take.
  Outcome settle_sure(ThreadTransport& t, const Times& times, bool plain, std::vector<int>* tried,
                      std::initializer_list<int> fail = {}) {
    std::vector<Choice> all = predictions(times);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].predicted_s = 1e-2 * (i == 0 ? 1 : 4 + static_cast<double>(i)), all[i].plain_s = 0.1;
    Trials trials(all, plain);
    tried->assign(times.size(), 0);
    Outcome outcome{};
    Choice choice = trials.choose(t, all, kCount);
    for (; choice.trial && outcome.calls < 1000; choice = trials.choose(t, all, kCount)) {
      const std::size_t i = index(choice, times);
      ++(*tried)[i], ++outcome.calls;
      if (std::find(fail.begin(), fail.end(), outcome.calls) == fail.end()) trials.took(1e-2 * times[i], kCount);
    }
    outcome.chosen = index(choice, times);
    CHECK(trials.finished());
    return outcome;
  }

  }  // namespace

  // Two tensors of one class, and four: in every step in one order.
  TEST_CASE("calls of several sizes that come in turns do not decide for who has the long ones") {
    for (const std::vector<std::uint64_t>& counts : {std::vector<std::uint64_t>{17'000, 32'000},
                                                     {17'000, 32'000, 32'000, 17'000},
                                                     {32'000, 17'000, 20'000, 30'000}})
      for (const std::size_t better : {0u, 1u}) {
        CAPTURE(counts.size());
        CAPTURE(better);
        run_ranks(2, [&](ThreadTransport& t) {
          const Times times{1, 1, 1};
          const auto all = predictions(times);
          Trials trials(all);
          std::size_t call = 0;
          const auto next = [&] { return counts[call++ % counts.size()]; };
          std::uint64_t count = next();
          Choice c = trials.choose(t, all, count);
          for (; c.trial && call < 1000; count = next(), c = trials.choose(t, all, count)) {
            // 100 us and 1 ns a value, or a tenth more; an element of a short call takes twice what one of a long does.
            const double s = 1e-4 + 1e-9 * static_cast<double>(count);
            trials.took((index(c, times) == better ? 1 : 1.1) * s, count);
          }
          CHECK_FALSE(c.trial);
          CHECK(index(c, times) == better);
        });
      }
  }

  TEST_CASE(
      "short calls settle within 60, within 5 % of the best and nearly as well as after 24 rounds of all, which take longer") {
    run_ranks(1, [&](ThreadTransport& t) {
      int number = 0;
      for (const Noise noise : kNoises) {
        CAPTURE(++number);
        std::mt19937 random(1);
        double regret = 0, race_regret = 0, cost = 0, race_cost = 0;
        int n = 0;
        for (const Times& times : kTimes) {
          const double best = *std::min_element(times.begin(), times.end());
          for (int run = 0; run < 400; ++run, ++n) {
            Trials trials(predictions(times), true);
            const int before = t.exchanges();
            const Outcome outcome =
                settle(trials, t, times, [&](std::size_t i, int) { return times[i] * noise(random); });
            CHECK(outcome.calls <= Trials::kMostCalls);
            CHECK(t.exchanges() - before <= 10);
            regret += times[outcome.chosen] / best - 1;
            cost += outcome.cost / best;
            const Outcome raced = race(times, [&](std::size_t i) { return times[i] * noise(random); });
            race_regret += times[raced.chosen] / best - 1;
            race_cost += raced.cost / best;
          }
        }
        MESSAGE("regret " << regret / n << ", after 24 rounds " << race_regret / n << "; 256 calls " << cost / n << ", "
                          << race_cost / n);
        CHECK(regret / n < 0.05);
        CHECK(regret / n < race_regret / n + 0.006);
        CHECK(cost < race_cost);  // of calls that take it for long, and of those that look for it
      }
    });
  }

  TEST_CASE("without noise the best is taken, and what is far behind is tried four times") {
    run_ranks(1, [&](ThreadTransport& t) {
      const Times times{1.2, 9, 1, 9, 9};
      std::vector<int> tried(times.size());
      Trials trials(predictions(times), true);
      const Outcome outcome = settle(trials, t, times, [&](std::size_t i, int) { return ++tried[i], times[i]; });
      CHECK(outcome.chosen == 2);
      CHECK(tried[0] == 4 + (Trials::kMostCalls - 20) / 2);
      CHECK(tried == std::vector<int>{tried[0], 4, tried[0], 4, 4});
      CHECK(trials.best_s() == doctest::Approx(1e-6));
      CHECK(trials.plain_s() == doctest::Approx(9e-6));
    });
  }

  TEST_CASE("a clock that goes back tells nothing, and trials end all the same") {
    run_ranks(1, [&](ThreadTransport& t) {
      for (const double back : {-1.0, -1e3}) {
        const Times times{1.2, 3, 1, 5, 9};
        Trials trials(predictions(times), true);
        const Outcome outcome = settle(
            trials, t, times, [&](std::size_t i, int call) { return call % 3 == 0 ? back * times[i] : times[i]; });
        CHECK(outcome.calls <= Trials::kMostCalls);
        CHECK(trials.finished());
        Trials never(predictions(times), true);
        settle(never, t, times, [&](std::size_t i, int) { return back * times[i]; });
        CHECK(never.finished());
      }
    });
  }

  TEST_CASE("what a link lends the first calls does not decide") {
    run_ranks(1, [&](ThreadTransport& t) {
      const Times times{1, 1.1, 1.2, 1.3, 3};
      const double lent[] = {1, 1.1, 1.2, 1.3, 0.4};
      Trials trials(predictions(times), true);
      const Outcome outcome =
          settle(trials, t, times, [&](std::size_t i, int call) { return call < 22 ? lent[i] : times[i]; });
      CHECK(outcome.chosen == 0);
    });
  }

  TEST_CASE("a model that is sure is held against its first calls") {
    run_ranks(1, [&](ThreadTransport& t) {
      std::vector<int> tried;
      // As predicted, or slower and far from the others still: plain MPI has one call.
      CHECK(settle_sure(t, {1, 5, 6, 10}, true, &tried).chosen == 0);
      CHECK(tried == std::vector<int>{5, 0, 0, 1});
      CHECK(settle_sure(t, {1.9, 1, 1, 2.4}, true, &tried).chosen == 0);
      CHECK(tried == std::vector<int>{5, 0, 0, 1});
      // MPI is not as slow as predicted.
      CHECK(settle_sure(t, {1, 5, 6, 0.9}, true, &tried).chosen == 3);
      CHECK(tried[1] + tried[2] == 0);
      CHECK(tried[3] >= 5);
      CHECK(settle_sure(t, {1, 5, 6, 1.1}, true, &tried).chosen == 0);
      CHECK(tried[3] >= 5);
      CHECK(settle_sure(t, {1, 5, 6, 0.02}, true, &tried).chosen == 3);
      CHECK(tried == std::vector<int>{5, 0, 0, 1});
      // Nor the model's best as fast.
      CHECK(settle_sure(t, {3, 1, 1, 2.5}, true, &tried).chosen == 3);
      CHECK(tried[1] + tried[2] == 0);
      CHECK(tried[3] >= 5);
      CHECK(settle_sure(t, {3, 1, 1, 3.5}, true, &tried).chosen == 0);
      // Ranks share cores, and everything takes five times what was predicted.
      CHECK(settle_sure(t, {5, 25, 30, 4}, true, &tried).chosen == 3);
      CHECK(tried[1] + tried[2] == 0);  // predicted behind what it took
      CHECK(settle_sure(t, {54, 50, 60, 36}, true, &tried).chosen == 3);
      CHECK(settle_sure(t, {8, 4, 7, 10}, true, &tried).chosen == 1);
      CHECK(settle_sure(t, {8, 9, 7, 10}, true, &tried).chosen == 2);
      CHECK(settle_sure(t, {200, 300, 400, 36}, true, &tried).calls <= Trials::kMostCalls);
      // Calls that end for what their values are (a loss scaler's overflow) say nothing of who carried them.
      for (const auto fail : {std::initializer_list<int>{2}, {3, 4}, {2, 3, 4}, {1, 2, 3, 4}, {2, 3, 4, 5}, {5}, {6}}) {
        CHECK(settle_sure(t, {1, 5, 6, 10}, true, &tried, fail).chosen == 0);
        CHECK(tried[1] + tried[2] == 0);
      }
      CHECK(settle_sure(t, {54, 50, 60, 36}, true, &tried, {3, 4}).chosen == 3);
      // Where MPI cannot be tried nothing is.
      CHECK(settle_sure(t, {54, 50, 60, 36}, false, &tried).calls == 0);
    });
  }

  TEST_CASE("a probe takes at most 15 calls, of three; only what is clear changes the choice") {
    run_ranks(1, [&](ThreadTransport& t) {
      const Times before{1.5, 1.2, 1, 1.1, 1.3};
      struct Case {
        Times now;
        std::size_t chosen;
        int most;
        double best;
      };
      for (const Case& of : {Case{before, 2, 15, 1}, Case{{1.5, 1.2, 1.1, 1, 1.3}, 2, 15, 1.1},
                             Case{{1.5, 1.2, 1.4, 1, 1.3}, 3, 15, 1}, Case{{1.5, 1.2, 1, 1.1, 0.5}, 4, 15, 0.5},
                             Case{{1.5, 1.2, 1.6, 1.76, 2.1}, 2, 15, 1.6},  // all that was asked is slower alike
                             Case{{3, 2.4, 4, 5, 5}, 1, 15 + Trials::kMostCalls, 2.4}}) {
        CAPTURE(of.now);
        Trials trials(predictions(before), true);
        CHECK(settle(trials, t, before, [&](std::size_t i, int) { return before[i]; }).chosen == 2);
        REQUIRE(trials.probe());
        CHECK_FALSE(trials.finished());
        CHECK(trials.probe());  // not again
        const Outcome outcome = settle(trials, t, of.now, [&](std::size_t i, int) { return of.now[i]; });
        CHECK(outcome.chosen == of.chosen);
        CHECK(outcome.calls <= of.most);
        CHECK(trials.best_s() == doctest::Approx(1e-6 * of.best));
        CHECK(trials.finished());
      }
      Trials none;
      CHECK_FALSE(none.probe());
      CHECK(none.best_s() == 0);
    });
  }

  TEST_CASE("ranks that see other times drop and choose alike") {
    std::vector<std::vector<std::size_t>> took(3);
    run_ranks(3, [&](ThreadTransport& t) {
      std::mt19937 random(static_cast<unsigned>(t.rank()));
      const Times times{1.5, 1.2, 1, 1.1, 1.3};
      auto& mine = took[static_cast<std::size_t>(t.rank())];
      Trials trials(predictions(times), true);
      for (int turn = 0; turn < 2; ++turn) {
        mine.push_back(settle(trials, t, times, [&](std::size_t i, int) {
                         mine.push_back(i);
                         return times[i] * (1 + kNoises[1](random));
                       }).chosen);
        trials.probe();
      }
    });
    CHECK(took[1] == took[0]);
    CHECK(took[2] == took[0]);
  }
}
