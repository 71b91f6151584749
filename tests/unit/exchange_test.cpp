// Calls that are started, asked for progress and finished, by every algorithm.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <latch>
#include <thread>

#include "collective/one_shot.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("exchange") {
  namespace {

  // What calls of one rank need besides their buffers.
  struct Side {
    // `behind`: bytes of the arena that the call does not ask for.
    Side(Transport& transport, const Setup& setup, Rank& rank, std::size_t behind = 0)
        : route(route_of(setup, transport.size())), buffers(buffers_of(setup, rank)) {
      for (const auto& s : setup.layout->segments) {
        if (setup.feedback && !setup.codec->traits().whole_tensors)
          buffers.residuals.push_back(rank.residual.data() + s.offset);
        if (!rank.owner_residual.empty()) buffers.owner_residuals.push_back(rank.owner_residual.data() + s.offset);
      }
      arena.reserve(route->bytes({}).together + behind);
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
    for (const char* spec : {"fp32", "fp16", "3lc", "thc", "powersgd"})
      for (const auto& entry : carriers()) {
        Setup setup{make_codec(spec), named_layout(150001, {60000, 17, 30000}), 150001};
        setup.algorithm = entry.algorithm;
        setup.feedback = setup.codec->feedback().kept();
        if (!entry.why_unsupported(*setup.codec, 3).empty()) continue;
        for (setup.radix = 1; setup.radix <= (entry.plan_relayed ? 2 : 1); ++setup.radix) {
          CAPTURE(text_of(setup));
          body(setup);
        }
      }
  }

  // Two of them at once: of different codecs, sizes and algorithms.
  std::pair<Setup, Setup> two_setups(const char* spec, Algorithm algorithm, const char* other_spec,
                                     Algorithm other_algorithm) {
    std::pair<Setup, Setup> two{{make_codec(spec), named_layout(150001, {60000, 17, 30000}), 150001},
                                {make_codec(other_spec), named_layout(90007, {50000}), 90007}};
    two.first.algorithm = algorithm;
    two.second.algorithm = other_algorithm;
    for (Setup* setup : {&two.first, &two.second}) setup->feedback = setup->codec->feedback().kept();
    return two;
  }

  template <class Body>
  void each_pair(Body&& body) {
    using enum Algorithm;
    body(two_setups("3lc", allgather, "3lc", allgather));
    body(two_setups("3lc", allgather, "thc", homomorphic));
    body(two_setups("3lc", two_shot, "fp16", allgather));
    for (const bool older : {true, false}) {
      auto both = two_setups("3lc", two_shot, "3lc", two_shot);
      (older ? both.first : both.second).radix = 2;
      body(both);
    }
    body(two_setups("thc", homomorphic, "thc", integer_sum));
    body(two_setups("powersgd", low_rank, "fp16", two_shot));
  }

  void check_same(const std::vector<Rank>& got, const std::vector<Rank>& expected) {
    for (std::size_t r = 0; r < got.size(); ++r) {
      CHECK_FALSE(got[r].result.error.has_value());
      CHECK(got[r].result.flags == 0);
      CHECK(got[r].result.sent_bytes == expected[r].result.sent_bytes);
      CHECK(got[r].result.received_bytes == expected[r].result.received_bytes);
      CHECK(difference(got[r].out, expected[r].out) == "");
      CHECK(difference(got[r].residual, expected[r].residual) == "");
      CHECK(difference(got[r].owner_residual, expected[r].owner_residual) == "");
    }
  }

  void run_blocking(const Setup& setup, std::vector<Rank>& ranks) {
    run_ranks(static_cast<int>(ranks.size()), [&](ThreadTransport& transport) {
      Rank& rank = ranks[static_cast<std::size_t>(transport.rank())];
      Side side(transport, setup, rank);
      side.exchange->start();
      rank.result = side.exchange->finish();
    });
  }

  // Ranks with two communicators. The second one's transports are made by threads that do nothing but keep them.
  void run_with_two(int n, const std::function<void(ThreadTransport&, ThreadTransport&)>& body) {
    struct Seat {
      ThreadTransport* transport = nullptr;
      std::latch taken{1}, left{1};
    };
    std::vector<Seat> seats(static_cast<std::size_t>(n));
    std::exception_ptr misused;
    std::thread keeper([&] {
      try {
        run_ranks(n, [&](ThreadTransport& transport) {
          Seat& seat = seats[static_cast<std::size_t>(transport.rank())];
          seat.transport = &transport;
          seat.taken.count_down();
          seat.left.wait();
        });
      } catch (...) {
        misused = std::current_exception();
      }
    });
    std::exception_ptr failed;
    try {
      run_ranks(n, [&](ThreadTransport& transport) {
        Seat& seat = seats[static_cast<std::size_t>(transport.rank())];
        seat.taken.wait();
        struct Leave {
          std::latch& left;
          ~Leave() { left.count_down(); }
        } const leave{seat.left};
        body(transport, *seat.transport);
      });
    } catch (...) {
      failed = std::current_exception();
    }
    keeper.join();
    if (failed) std::rethrow_exception(failed);
    if (misused) std::rethrow_exception(misused);
  }

  }  // namespace

  TEST_CASE("one exchange has the bits of allgather's two, and its bytes are known before") {
    for (const char* spec : {"fp16", "3lc", "3lc:s=0.5,entropy=1", "8bit", "topk", "thc", "qsgd"}) {
      Setup setup{make_codec(spec), named_layout(60001, {30000, 17, 20000}), 60001};
      setup.chunk = 6 * kPieceElements;
      setup.feedback = setup.codec->feedback().kept();
      auto two = make_ranks(setup, 3, 5), one = two;
      run_blocking(setup, two);
      setup.algorithm = Algorithm::one_shot;
      const auto route = route_of(setup, 3);
      run_blocking(setup, one);
      CAPTURE(spec);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK_FALSE(one[r].result.error.has_value());
        CHECK(difference(one[r].out, two[r].out) == "");
        CHECK(difference(one[r].residual, two[r].residual) == "");
        CHECK(one[r].result.sent_bytes == frame_bytes(*route));
        CHECK(one[r].result.sent_bytes >= two[r].result.sent_bytes);
        CHECK(one[r].result.received_bytes == 2 * frame_bytes(*route));
      }
    }
  }

  TEST_CASE("one exchange: each rank's values in a unit of their own, and a flag of one for all") {
    Setup setup{make_codec("fp32"), named_layout(20001, {20001}), 20001};
    setup.chunk = 2 * kPieceElements;
    setup.algorithm = Algorithm::one_shot;
    setup.feedback = false;
    auto ranks = make_ranks(setup, 3, 7);
    std::vector<double> sums(20001);
    const int exponents[3] = {5, -3, 0};
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < sums.size(); ++i) {
        ranks[r].values[i] =
            static_cast<float>(static_cast<int>((i * 7 + r) % 64));  // whole numbers: no sum is rounded
        sums[i] += std::ldexp(static_cast<double>(ranks[r].values[i]), exponents[r]);
      }
    for (const bool flagged : {false, true}) {
      run_ranks(3, [&](ThreadTransport& transport) {
        const auto r = static_cast<std::size_t>(transport.rank());
        Side side(transport, setup, ranks[r]);
        side.buffers.exponent = exponents[r];
        if (flagged && r == 1) side.buffers.flags = kFlagExact;
        side.exchange->start();
        ranks[r].result = side.exchange->finish();
      });
      for (const Rank& rank : ranks) {
        CHECK(rank.result.flags == (flagged ? kFlagExact : 0));
        if (flagged) continue;
        CHECK(rank.result.exponent == 5);
        for (std::size_t i = 0; i < sums.size(); ++i)
          REQUIRE(std::ldexp(static_cast<double>(rank.out[i]), 5) == sums[i]);
      }
    }
  }

  TEST_CASE("momentum of calls of several chunks waits in the call's memory until it is kept, and nowhere else") {
    const std::uint64_t count = 150001;
    const std::size_t behind = count * sizeof(float);
    for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot}) {
      Setup setup{make_codec("dgc:ratio=0.01"), named_layout(count, {count}), count};
      setup.algorithm = algorithm;
      CAPTURE(text_of(setup));
      auto ranks = make_ranks(setup, 2, 5);
      std::vector<float> first[2];
      for (std::size_t r = 0; r < 2; ++r) ranks[r].residual.resize(2 * count), first[r] = ranks[r].values;
      for (std::uint32_t step = 0; step < 2; ++step) {
        for (std::size_t r = 0; step && r < 2; ++r) ranks[r].values = make_ranks(setup, 2, 8)[r].values;
        run_ranks(2, [&](ThreadTransport& transport) {
          Rank& rank = ranks[static_cast<std::size_t>(transport.rank())];
          rank.sequence = step;
          Side side(transport, setup, rank, behind);
          side.exchange->start();
          rank.result = side.exchange->finish();
          const std::byte *const begin = side.arena.data(), *const end = begin + side.arena.bytes();
          CHECK(
              std::all_of(begin + side.route->bytes({}).together, end, [](std::byte b) { return b == std::byte{0}; }));
        });
      }
      for (std::size_t r = 0; r < 2; ++r) {
        std::size_t neither = 0, wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          // Not sent in either step, sent in the first one, in the second one.
          const float g = first[r][i], h = ranks[r].values[i], u = 0.9f * g + h;
          const float v = ranks[r].residual[i], kept = ranks[r].residual[count + i];
          const bool waits = v == g + u && kept == u;
          wrong += !waits && !(v == h && kept == h) && !(v == 0 && kept == 0);
          neither += waits;
        }
        CHECK(wrong == 0);
        CHECK(neither > count * 9 / 10);
      }
    }
  }

  TEST_CASE("one exchange of values in units of their own: a malformed piece is the error of who received it") {
    Setup setup{make_codec("3lc:zero_run=0"), named_layout(20001, {20001}), 20001};
    setup.algorithm = Algorithm::one_shot;
    setup.feedback = setup.checksum = false;
    auto ranks = make_ranks(setup, 3, 7);
    RunOptions options;
    options.tamper = [](int receiver, int, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && from == 2) bytes[1000] = 255;  // no five values make it
    };
    run_ranks(
        3,
        [&](ThreadTransport& transport) {
          const auto r = static_cast<std::size_t>(transport.rank());
          Side side(transport, setup, ranks[r]);
          side.buffers.exponent = transport.rank();
          side.exchange->start();
          ranks[r].result = side.exchange->finish();
        },
        options);
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks[r].result.error.has_value() == (r == 1));
    REQUIRE(ranks[1].result.error);
    CHECK(ranks[1].result.error->code() == ErrorCode::payload_corrupt);
    CHECK(std::string(ranks[1].result.error->what()).find("rank 1 received from rank 2") != std::string::npos);
  }

  TEST_CASE("a call that is asked for progress has the bits and the bytes of one that blocks") {
    each_setup([](const Setup& setup) {
      auto blocking = make_ranks(setup, 3, 5), asked = blocking;
      std::atomic<int> complete{0};
      run_blocking(setup, blocking);
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
      check_same(asked, blocking);
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

  TEST_CASE("two exchanges of one communicator that are under way at once finish as each does alone") {
    each_pair([](const std::pair<Setup, Setup>& setups) {
      const Setup &one = setups.first, &other = setups.second;
      CAPTURE(text_of(one));
      CAPTURE(text_of(other));
      const auto first = make_ranks(one, 3, 5), second = make_ranks(other, 3, 6);
      auto first_alone = first, second_alone = second;
      run_blocking(one, first_alone);
      run_blocking(other, second_alone);
      for (const bool asks : {false, true}) {
        auto a = first, b = second;
        run_ranks(3, [&](ThreadTransport& transport) {
          const auto r = static_cast<std::size_t>(transport.rank());
          Side x(transport, one, a[r]), y(transport, other, b[r]);
          x.exchange->start();
          y.exchange->start();
          // Ranks get on with the older one as far as they like, and as often; one does not ask at all.
          for (int i = 0; asks && i < 40 * transport.rank() && !x.exchange->progress(); ++i) std::this_thread::yield();
          a[r].result = x.exchange->finish();
          while (asks && transport.rank() != 1 && !y.exchange->progress()) std::this_thread::yield();
          b[r].result = y.exchange->finish();
        });
        check_same(a, first_alone);
        check_same(b, second_alone);
      }
    });
  }

  TEST_CASE("exchanges of two communicators move on in any order, another on each rank") {
    each_pair([](const std::pair<Setup, Setup>& setups) {
      const Setup &one = setups.first, &other = setups.second;
      CAPTURE(text_of(one));
      CAPTURE(text_of(other));
      auto a = make_ranks(one, 3, 5), b = make_ranks(other, 3, 6);
      auto first_alone = a, second_alone = b;
      run_blocking(one, first_alone);
      run_blocking(other, second_alone);
      run_with_two(3, [&](ThreadTransport& first, ThreadTransport& second) {
        const auto r = static_cast<std::size_t>(first.rank());
        Side x(first, one, a[r]), y(second, other, b[r]);
        Exchange* const order[] = {r == 1 ? y.exchange.get() : x.exchange.get(),
                                   r == 1 ? x.exchange.get() : y.exchange.get()};
        for (Exchange* e : order) e->start();
        bool done[2] = {};
        for (std::size_t i = r; !(done[0] && done[1]); ++i) {
          done[i % 2] = order[i % 2]->progress();
          std::this_thread::yield();
        }
        b[r].result = y.exchange->finish();
        a[r].result = x.exchange->finish();
      });
      check_same(a, first_alone);
      check_same(b, second_alone);
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
