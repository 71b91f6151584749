// What an owner held of places that it owns no more goes to its own residual, all of it and nothing else.
#include "collective/owned_runs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "collective/residual.hpp"
#include "memory/workers.hpp"

using namespace crimp;

TEST_SUITE("owned_runs") {
  namespace {

  using Runs = std::vector<Shares::Run>;

  Runs random_runs(std::mt19937& random, std::uint64_t count, std::size_t most) {
    std::vector<std::uint64_t> borders(2 * (random() % (most + 1)));
    for (std::uint64_t& b : borders) b = random() % (count + 1);
    std::sort(borders.begin(), borders.end());
    Runs runs;
    for (std::size_t i = 0; i < borders.size(); i += 2) runs.push_back({borders[i], borders[i + 1]});
    return runs;
  }

  bool holds(const OwnedRuns& owned, const Runs& now, std::uint64_t at) {
    const auto in = [at](const auto& run) { return run.begin <= at && at < run.end; };
    return std::any_of(now.begin(), now.end(), in) || std::any_of(owned.left().begin(), owned.left().end(), in);
  }

  // Memory that counts what goes through the host.
  struct Elsewhere final : MemoryResource {
    std::byte* allocate(std::size_t bytes) override { return host_memory().allocate(bytes); }
    void free(std::byte* at, std::size_t bytes) noexcept override { host_memory().free(at, bytes); }
    void read(void* host, const void* from, std::size_t bytes) override {
      ++reads;
      host_memory().read(host, from, bytes);
    }
    void write(void* to, const void* host, std::size_t bytes) override { host_memory().write(to, host, bytes); }
    int reads = 0;
  };

  void fill(float* held, const Runs& runs, std::mt19937& random) {
    for (const auto& run : runs)
      for (std::uint64_t i = run.begin; i < run.end; ++i) held[i] = static_cast<float>(random() % 2001) - 1000.0f;
  }

  }  // namespace

  TEST_CASE("nothing is lost, and nothing is held where nobody looks for it") {
    Workers workers(2);
    std::mt19937 random(7);
    for (int round = 0; round < 60; ++round) {
      const std::uint64_t count = 1 + random() % 5000;
      const int ranks = 2 + static_cast<int>(random() % 3);
      const std::size_t most = round % 3 == 0 ? 200 : 4;  // runs of a call: more than are kept apart, too
      std::vector<float> held(count), own(count);
      std::vector<double> all(count);
      OwnedRuns owned;
      Runs now;
      for (std::uint64_t call = 1; call <= 40; ++call) {
        now = call % 5 == 0 ? Runs() : random_runs(random, count, most);
        owned.own(call, now);
        CHECK(owned.by(call));
        owned.hand_on(held.data(), own.data(), ranks, host_memory(), workers);
        bool right = true;
        for (std::uint64_t i = 0; i < count; ++i)
          right &= (held[i] == 0 || holds(owned, now, i)) &&
                   std::abs(static_cast<double>(held[i]) + static_cast<double>(own[i]) - all[i]) <= 1e-3;
        REQUIRE(right);
        for (std::uint64_t i = 0; i < count; ++i) all[i] -= static_cast<double>(held[i]);
        fill(held.data(), now, random);
        for (std::uint64_t i = 0; i < count; ++i) all[i] += static_cast<double>(held[i]);
        std::uint64_t end = 0;
        for (const auto& run : owned.left()) {
          REQUIRE((run.begin >= end && run.begin < run.end && run.end <= count));
          end = run.end;
        }
      }
      owned.own(100, {});
      for (std::uint32_t call = 0; call < OwnedRuns::most_calls(ranks); ++call)
        owned.hand_on(held.data(), own.data(), ranks, host_memory(), workers);
      CHECK(owned.empty());
      CHECK(std::all_of(held.begin(), held.end(), [](float v) { return v == 0; }));
    }
  }

  TEST_CASE("a part in each call, and what comes back to its owner stays with it") {
    Workers workers(1);
    std::vector<float> held(100, 8.0f), own(100, 1.0f);
    OwnedRuns owned;
    CHECK(!owned.by(0));
    owned.own(0, Runs{{0, 100}});
    CHECK(owned.by(0));
    CHECK(owned.left().empty());
    owned.own(2, Runs{{0, 40}});
    owned.hand_on(held.data(), own.data(), 4, host_memory(), workers);
    CHECK(held[39] == 8.0f);
    CHECK(own[39] == 1.0f);
    CHECK(held[40] == 7.0f);
    CHECK(own[40] == 2.0f);
    owned.own(3, Runs{{30, 60}});
    owned.hand_on(held.data(), own.data(), 4, host_memory(), workers);
    CHECK(held[0] == 7.0f);
    CHECK(held[40] == 7.0f);
    CHECK(held[99] == 6.125f);
    CHECK(own[99] == 2.875f);
    const std::vector<OwnedRuns::Run> left{{0, 30, 1}, {60, 100, 2}};
    CHECK(owned.left() == left);
  }

  TEST_CASE("elsewhere than in the host's memory all at once") {
    Workers workers(1);
    Elsewhere memory;
    std::vector<float> held(100, 8.0f), own(100, 1.0f);
    OwnedRuns owned;
    owned.leave_all(100);
    for (std::uint32_t call = 1; call < OwnedRuns::most_calls(4); ++call)
      owned.hand_on(held.data(), own.data(), 4, memory, workers);
    CHECK(memory.reads == 0);
    CHECK(own[0] == 1.0f);
    owned.hand_on(held.data(), own.data(), 4, memory, workers);
    CHECK(held[99] == 0.0f);
    CHECK(own[99] == 9.0f);
    CHECK(owned.empty());
  }

  TEST_CASE("an owner's that holds nothing is dropped, but not where the call that emptied it did not compress") {
    ResidualStore store;
    store.keep_bytes(0);
    Workers workers(1);
    const ResidualKey key{Layout::Source::named, true, "t"};
    const ResidualShape shape{64, FeedbackKind::residual, 64};
    CHECK(!store.holds_sums());
    store.begin_call();
    Residual& made = store.find(key, shape);
    made.owned.own(1, Runs{{0, 64}});
    std::fill_n(made.values, 64, 2.0f);
    store.settle();
    store.keep();
    CHECK(store.holds_sums());
    for (const bool compresses : {false, true}) {
      store.begin_call();
      REQUIRE(store.shape_of(key));
      Residual& held = store.find(key, shape);
      store.drop_when_empty(key);
      CHECK(held.values[5] == 2.0f);
      held.owned.own(2, {});
      std::vector<float> own(64);
      for (std::uint32_t call = 0; call < OwnedRuns::most_calls(2); ++call)
        held.owned.hand_on(held.values, own.data(), 2, host_memory(), workers);
      CHECK(held.owned.empty());
      if (compresses) store.settle();
      store.begin_call();
      CHECK(store.holds_sums() == !compresses);
      CHECK(store.shape_of(key).has_value() == !compresses);
    }
  }
}
