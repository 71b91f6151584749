// Calls that are started, asked for progress and finished, by every algorithm.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;

namespace {

// What calls of one rank need besides their buffers.
struct Side {
  Side(Transport& transport, const Setup& setup, Rank& rank) : route(route_of(setup, transport.size())), buffers(buffers_of(setup, rank)) {
    for (const auto& s : setup.layout->segments) {
      if (setup.feedback && !setup.codec->traits().whole_tensors) buffers.residuals.push_back(rank.residual.data() + s.offset);
      if (!rank.owner_residual.empty()) buffers.owner_residuals.push_back(rank.owner_residual.data() + s.offset);
    }
    arena.reserve(route->bytes({}).together);
    buffers.arena = &arena;
    exchange = route->exchange(transport, buffers, workers, nullptr);
  }
  std::shared_ptr<const RoutePlan> route;
  CallBuffers buffers;
  Arena arena;
  Workers workers{1};
  std::unique_ptr<Exchange> exchange;
};

template <class Body>
void each_setup(Body&& body) {
  for (const char* spec : {"none", "fp16", "3lc", "thc", "powersgd"})
    for (const auto& entry : carriers()) {
      Setup setup{make_codec(spec), named_layout(150001, {60000, 17, 30000}), 150001};
      setup.algorithm = entry.algorithm;
      setup.feedback = setup.codec->memory().kept();
      if (!entry.obstacle(*setup.codec, 3).empty()) continue;
      CAPTURE(text_of(setup));
      body(setup);
    }
}

}  // namespace

TEST_SUITE("exchange") {
  TEST_CASE("a call that is asked for progress has the bits and the bytes of one that blocks") {
    each_setup([](const Setup& setup) {
      auto blocking = make_ranks(setup, 3, 5), asked = blocking;
      std::atomic<int> complete{0};
      run_ranks(3, [&](ThreadTransport& transport) {
        Rank& rank = blocking[static_cast<std::size_t>(transport.rank())];
        Side side(transport, setup, rank);
        side.exchange->start();
        rank.result = side.exchange->finish();
      });
      run_ranks(3, [&](ThreadTransport& transport) {
        Rank& rank = asked[static_cast<std::size_t>(transport.rank())];
        Side side(transport, setup, rank);
        side.exchange->start();
        while (!side.exchange->progress()) std::this_thread::yield();
        CHECK(side.exchange->progress());
        ++complete;
        // Whoever waits now waits for nobody: the others are complete without this rank's finish().
        for (int i = 0; i < 10000 && complete < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        rank.result = side.exchange->finish();
      });
      CHECK(complete == 3);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK_FALSE(asked[r].result.error.has_value());
        CHECK(asked[r].result.flags == 0);
        CHECK(asked[r].result.sent_bytes == blocking[r].result.sent_bytes);
        CHECK(asked[r].result.received_bytes == blocking[r].result.received_bytes);
        CHECK(difference(asked[r].out, blocking[r].out) == "");
        CHECK(difference(asked[r].residual, blocking[r].residual) == "");
        CHECK(difference(asked[r].owner_residual, blocking[r].owner_residual) == "");
      }
    });
  }

  TEST_CASE("neither start() nor progress() waits for ranks that have not come") {
    each_setup([](const Setup& setup) {
      auto ranks = make_ranks(setup, 3, 5);
      std::atomic<bool> asked{false};
      std::atomic<int> late{0};
      run_ranks(3, [&](ThreadTransport& transport) {
        Side side(transport, setup, ranks[static_cast<std::size_t>(transport.rank())]);
        if (transport.rank() != 0) {
          for (int i = 0; i < 10000 && !asked; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          late += !asked;
        }
        side.exchange->start();
        if (transport.rank() == 0) {
          for (int i = 0; i < 3; ++i) CHECK_FALSE(side.exchange->progress());
          asked = true;
        }
        CHECK_FALSE(side.exchange->finish().error.has_value());
      });
      CHECK(late == 0);
    });
  }

  TEST_CASE("one plan serves any number of calls at once") {
    const Setup setup{make_codec("3lc"), named_layout(150001, {60000, 17}), 150001};
    const auto route = route_of(setup, 3);
    auto alone = make_ranks(setup, 3, 5), together = alone;
    run_all(setup, alone);
    std::vector<std::thread> communicators;
    std::vector<std::vector<Rank>> all(3, together);
    for (auto& ranks : all)
      communicators.emplace_back([&] {
        run_ranks(3, [&](ThreadTransport& transport) {
          Rank& rank = ranks[static_cast<std::size_t>(transport.rank())];
          CallBuffers buffers = buffers_of(setup, rank);
          for (const auto& s : setup.layout->segments) buffers.residuals.push_back(rank.residual.data() + s.offset);
          Arena arena;
          arena.reserve(route->bytes({}).together);
          buffers.arena = &arena;
          Workers workers(1);
          allreduce_compressed(transport, *route, buffers, workers);
        });
      });
    for (auto& c : communicators) c.join();
    for (const auto& ranks : all)
      for (std::size_t r = 0; r < 3; ++r) CHECK(difference(ranks[r].out, alone[r].out) == "");
  }
}
