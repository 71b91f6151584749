// The timeline of a step and its optimum: by hand, against all 2^(N-1) groupings (times codecs, times orders of
// decoding), and as long as the literature's nets.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <random>

#include "schedule/merge_search.hpp"

using namespace crimp;

TEST_SUITE("merge_search") {
  namespace {

  constexpr double kCall = 1e-3, kByte = 1e-9;
  CallTime line(std::uint64_t bytes, std::uint8_t = 0) {
    return {.wire_s = kCall + kByte * static_cast<double>(bytes)};
  }

  Grouping in(Cuts cuts, std::vector<std::uint8_t> codecs = {}) { return {std::move(cuts), std::move(codecs)}; }

  Cuts cuts_of(std::uint32_t bits, std::uint32_t tensors) {
    Cuts cuts;
    for (std::uint32_t i = 1; i < tensors; ++i)
      if (bits >> (i - 1) & 1) cuts.push_back(i);
    return cuts;
  }

  struct Job {
    double ready, encode, wire, decode;
  };

  std::vector<Job> jobs_of(const Timeline& step, const Grouping& grouping) {
    std::vector<Job> jobs;
    std::size_t next = 0;
    double ready = 0;
    for (std::size_t g = 0; g <= grouping.cuts.size(); ++g) {
      const std::size_t end = g < grouping.cuts.size() ? grouping.cuts[g] : step.bytes.size();
      std::uint64_t bytes = 0;
      for (; next < end; ++next) ready = std::max(ready, step.ready_s[next]), bytes += step.bytes[next];
      const CallTime t = step.call(bytes, grouping.codecs.empty() ? 0 : grouping.codecs[g]);
      jobs.push_back({ready, t.encode_s, t.wire_s, t.decode_s});
    }
    return jobs;
  }

  // A processor that does a list of jobs one after another, and a wire. late, for each group but the first: it is
  // encoded ahead of the decoding of the group before.
  double overlapped_end(const std::vector<Job>& jobs, std::uint32_t late) {
    std::vector<double> sent(jobs.size());
    double processor = 0, wire = 0;
    const auto encode = [&](std::size_t g) {
      processor = std::max(processor, jobs[g].ready) + jobs[g].encode;
      wire = sent[g] = std::max(wire, processor) + jobs[g].wire;
    };
    const auto decode = [&](std::size_t g) { processor = std::max(processor, sent[g]) + jobs[g].decode; };
    encode(0);
    for (std::size_t g = 1; g < jobs.size(); ++g) {
      if (late >> (g - 1) & 1) encode(g), decode(g - 1);
      else decode(g - 1), encode(g);
    }
    decode(jobs.size() - 1);
    return processor;
  }

  double blocking_end(const std::vector<Job>& jobs) {
    double end = 0;
    for (const Job& job : jobs) end = std::max(end, job.ready) + (job.encode + job.wire + job.decode);
    return end;
  }

  // Of all groupings and codecs.
  double least_end(const Timeline& step) {
    const auto n = static_cast<std::uint32_t>(step.bytes.size());
    double least = INFINITY;
    for (std::uint32_t bits = 0; bits < 1u << (n - 1); ++bits) {
      Grouping grouping{cuts_of(bits, n), {}};
      const std::size_t groups = grouping.cuts.size() + 1;
      grouping.codecs.assign(groups, 0);
      for (;;) {
        const auto jobs = jobs_of(step, grouping);
        double end = INFINITY;
        if (step.blocking) end = blocking_end(jobs);
        else
          for (std::uint32_t late = 0; late < 1u << (groups - 1); ++late)
            end = std::min(end, overlapped_end(jobs, late));
        CHECK(step.end_s(grouping) == doctest::Approx(end).epsilon(1e-12));
        least = std::min(least, end);
        std::size_t g = 0;
        while (g < groups && ++grouping.codecs[g] == step.codecs) grouping.codecs[g++] = 0;
        if (g == groups) break;
      }
    }
    return least;
  }

  Timeline random_net(std::mt19937& generator, std::uint32_t tensors, bool in_order) {
    const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
    Timeline step;
    double ready = 0;
    const double gap = std::pow(10, -4 + 3e-9 * random() / 4.3);  // what a tensor more takes to compute
    for (std::uint32_t i = 0; i < tensors; ++i) {
      ready += gap * (random() % 8);
      step.ready_s.push_back(in_order ? ready : gap * (random() % 100));
      step.bytes.push_back(1 + random() % 20'000'000);
    }
    return step;
  }

  }  // namespace

  TEST_CASE("a step by hand") {
    // Ready after 1, 2 and 10 ms, 1 MB each: a call takes 1 ms and 1 ms for each MB.
    const Timeline step{{1e-3, 2e-3, 10e-3}, {1'000'000, 1'000'000, 1'000'000}, line};
    CHECK(step.end_s({}) == doctest::Approx(14e-3));          // 10 + 1 + 3
    CHECK(step.end_s(in({1, 2})) == doctest::Approx(12e-3));  // 1..3, 3..5, 10..12
    CHECK(step.end_s(in({2})) == doctest::Approx(12e-3));     // 2..5, 10..12
    CHECK(step.end_s(in({1})) == doctest::Approx(13e-3));     // 1..3, 10..13
    CHECK(best_grouping(step) == in({2}));                    // as early in fewer calls
    CHECK(Timeline{{}, {}, line}.end_s({}) == 0);
    CHECK(best_grouping({{}, {}, line}) == Grouping{});
    CHECK(best_grouping({{5}, {1}, line}) == Grouping{});
  }

  TEST_CASE("everything at once is one call; nothing to pay for a call is a call for each") {
    const std::vector<std::uint64_t> bytes(6, 1'000'000);
    CHECK(best_grouping({std::vector<double>(6, 0.0), bytes, line}) == Grouping{});
    const Timeline apart{{1, 2, 3, 4, 5, 6}, bytes, [](std::uint64_t b, std::uint8_t) {
                           return CallTime{.wire_s = kByte * static_cast<double>(b)};
                         }};
    CHECK(apart.end_s(best_grouping(apart)) == doctest::Approx(6.001));
  }

  // Timelines of which a front of eight ways has kept none that ends as early as where calls are blocking.
  TEST_CASE("where no way is left that ends as early as the blocking one, that one is taken") {
    for (const std::uint32_t seed : {6618u, 258582u, 299738u, 363664u}) {
      CAPTURE(seed);
      std::mt19937 generator(seed);
      const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(generator()) % n; };
      const std::uint32_t tensors = 3 + below(10);
      Timeline step;
      step.codecs = static_cast<std::uint8_t>(1 + below(4));
      double ready = 0;
      for (std::uint32_t i = 0; i < tensors; ++i) {
        step.ready_s.push_back(ready += below(4));
        const std::uint32_t small = below(6);
        step.bytes.push_back(small + (below(3) ? 0 : 20));
      }
      std::vector<std::array<double, 6>> lines(step.codecs);
      for (auto& line : lines)
        for (double& x : line) x = 0.5 * below(4);
      step.call = [&](std::uint64_t bytes, std::uint8_t codec) {
        const auto& line = lines[codec];
        const double size = 0.2 * static_cast<double>(bytes);
        return CallTime{line[0] + line[1] * size, line[2] + line[3] * size, line[4] + line[5] * size};
      };
      Timeline blocking = step;
      blocking.blocking = true;
      step.blocking = false;
      CHECK(step.end_s(best_grouping(step)) <= step.end_s(best_grouping(blocking)) * (1 + 1e-9));
    }
  }

  TEST_CASE("a tensor that is ready before one ahead of it waits for it") {
    const Timeline step{{9e-3, 1e-3}, {1000, 1000}, [](std::uint64_t, std::uint8_t) { return CallTime{kCall}; }};
    CHECK(step.end_s(in({1})) == doctest::Approx(11e-3));
    CHECK(step.end_s({}) == doctest::Approx(10e-3));
  }

  TEST_CASE("each group has the codec that takes least for it") {
    // 1 us, or 10 us and a tenth of the time a byte: the first is for less than 10 KB.
    const Timeline step{{1, 2},
                        {1'000, 1'000'000},
                        [](std::uint64_t bytes, std::uint8_t codec) {
                          const auto b = static_cast<double>(bytes);
                          return codec ? CallTime{1e-5, 1e-10 * b, 0} : CallTime{1e-6, 1e-9 * b, 0};
                        },
                        2};
    CHECK(best_grouping(step) == in({1}, {0, 1}));
  }

  TEST_CASE("of a group what is summed exactly has a price of its own") {
    // A call takes 1 ms, and another one where it has exact bytes beside others; 1 ms for each MB, exact ones 5 ms.
    Timeline step{{0, 0, 10e-3}, {1'000'000, 1'000'000, 1'000'000}, line};
    step.exact = {0, 1'000'000, 0};
    step.mixed = [](std::uint64_t bytes, std::uint64_t exact, std::uint8_t) {
      const auto calls = static_cast<double>(exact > 0) + static_cast<double>(bytes > exact);
      return CallTime{.wire_s = kCall * calls + kByte * static_cast<double>(bytes + 4 * exact)};
    };
    CHECK(step.end_s(in({1, 2})) == doctest::Approx(12e-3));  // 0..2, 2..8, 10..12
    CHECK(step.end_s(in({2})) == doctest::Approx(12e-3));     // 0..8, 10..12
    CHECK(step.end_s({}) == doctest::Approx(19e-3));          // 10 + 2 + 2 + 5
    CHECK(best_grouping(step) == in({2}));
    step.blocking = false;  // one resource alone is used
    CHECK(step.end_s(best_grouping(step)) == doctest::Approx(12e-3));
  }

  TEST_CASE("calls that overlap, by hand") {
    // Two groups, ready at once: each is encoded for 1 s, sent for 2 and decoded for 1.
    Timeline step{{0, 0}, {1, 1}, [](std::uint64_t, std::uint8_t) { return CallTime{1, 2, 1}; }};
    CHECK(step.end_s(in({1})) == 8);
    step.blocking = false;
    CHECK(step.end_s(in({1})) == 6);  // encoded 0..1 and 1..2, sent 1..3 and 3..5, decoded 3..4 and 5..6
    // The second one is ready at 10: the first is decoded before that.
    step.ready_s = {0, 10};
    CHECK(step.end_s(in({1})) == 14);
  }

  TEST_CASE("the optimum is that of all groupings") {
    std::mt19937 generator(1);
    for (int net = 0; net < 200; ++net) {
      Timeline step = random_net(generator, 1 + static_cast<std::uint32_t>(generator() % (net < 8 ? 16 : 10)), net % 3);
      // A line, steps, and one with a threshold.
      if (net % 2) step.call = line;
      else
        step.call = [](std::uint64_t b, std::uint8_t) {
          return CallTime{.wire_s = (b > 5'000'000 ? 4e-3 : 1e-3) + 1e-3 * static_cast<double>(b / 3'000'000)};
        };
      CAPTURE(net);
      CHECK(step.end_s(best_grouping(step)) == doctest::Approx(least_end(step)).epsilon(1e-12));
    }
  }

  TEST_CASE("the optimum is that of all groupings, codecs and orders of decoding") {
    std::mt19937 generator(2);
    for (int net = 0; net < 120; ++net) {
      Timeline step = random_net(generator, 1 + static_cast<std::uint32_t>(generator() % 6), net % 3);
      step.codecs = static_cast<std::uint8_t>(1 + net % 3);
      step.blocking = net % 4 == 0;
      double parts[3][6];
      for (auto& codec : parts)
        for (double& s : codec) s = std::pow(10, -4 + 2 * (static_cast<double>(generator()) / 4.3e9));
      step.call = [&parts](std::uint64_t bytes, std::uint8_t codec) {
        const double mb = static_cast<double>(bytes) / 1e7;
        const auto& of = parts[codec];
        return CallTime{of[0] + of[1] * mb, of[2] + of[3] * mb, of[4] + of[5] * mb};
      };
      CAPTURE(net);
      CHECK(step.end_s(best_grouping(step)) == doctest::Approx(least_end(step)).epsilon(1e-12));
    }
  }

  // As many tensors as nets that merge schedulers are measured with.
  TEST_CASE("nets of the literature take no time") {
    for (const std::size_t tensors : {161, 207, 314, 399})
      for (const bool blocking : {true, false}) {
        std::mt19937 random(static_cast<unsigned>(tensors));
        Timeline step;
        for (std::size_t i = 0; i < tensors; ++i) {
          step.ready_s.push_back(1e-4 * static_cast<double>(i));
          step.bytes.push_back(4u << random() % 22);
        }
        step.codecs = 3;
        step.blocking = blocking;
        step.call = [](std::uint64_t bytes, std::uint8_t codec) {
          const double s = kByte * static_cast<double>(bytes);
          if (codec == 0) return CallTime{0, kCall / 4 + s, 0};
          return CallTime{kCall / 8 + s / (4 * codec), kCall / 4 + s / (8 / codec), kCall / 8 + s / (8 * codec)};
        };
        const auto begin = std::chrono::steady_clock::now();
        const Grouping best = best_grouping(step);
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        MESSAGE(tensors << " tensors" << std::string(blocking ? "" : ", calls that overlap") << ": "
                        << best.cuts.size() + 1 << " groups in " << took.count() << " ms, " << step.end_s(best)
                        << " s");
        CHECK(step.end_s(best) <= step.end_s({}));
      }
  }
}
