// The two-shot algorithm against the model: sums, residuals and owners' residuals bit for bit, on every rank; and what
// it does with corrupt bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "collective/algorithms.hpp"
#include "memory/workers.hpp"
#include "support/collective_check.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/failing_backend.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("two_shot") {
  namespace {

  Setup setup_of(const std::string& spec, std::uint64_t count, std::shared_ptr<const Layout> layout) {
    Setup setup{make_codec(spec), std::move(layout), count};
    setup.feedback = setup.codec->feedback().kept();
    setup.algorithm = Algorithm::two_shot;
    return setup;
  }

  // Headers and bodies of shards, then of sums, for each chunk.
  void check(const Setup& setup, int n, std::uint64_t seed) { check_calls(setup, n, seed, 4); }

  struct Tampering {
    int receiver, exchange, from;
  };
  // The ranks after one call in which a byte was changed on its way.
  std::vector<Rank> tampered(const Setup& setup, int n, const Tampering& where) {
    auto ranks = make_ranks(setup, n, 1);
    RunOptions options;
    options.tamper = [&](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == where.receiver && exchange == where.exchange && from == where.from && !bytes.empty())
        bytes[bytes.size() / 2] = 255;
    };
    run_all(setup, ranks, options);
    return ranks;
  }

  }  // namespace

  TEST_CASE("every codec and number of ranks with unknown and named layouts in and out of place") {
    Turns turns(7, 7, 37);
    for (const auto& codec : all_codecs()) {
      const std::uint64_t count = 100003;
      for (const int n : {1, 2, 3, 8}) {
        Setup setup = setup_of(codec->spec(), count, Layout::unknown(count));
        setup.in_place = n != 2;
        if (turns.next()) check(setup, n, 1);
        setup.layout = named_layout(count, {1, 40959, 7, 12345, 43000, 3});
        setup.in_place = n == 2;
        if (turns.next()) check(setup, n, 2);
      }
    }
  }

  TEST_CASE("counts around pieces and chunks, more ranks than pieces, one to six chunks") {
    Turns turns(1, 1, 5);
    for (const std::uint64_t count : {0, 1, 5, 10240, 10241, 40960, 40961, 81921, 122881, 163841, 204801}) {
      Setup setup = setup_of("3lc:s=1.5", count, Layout::unknown(count));
      if (turns.next()) check(setup, 2, count);
      setup.layout = named_layout(count, {count / 2 + 1});
      setup.in_place = true;
      if (turns.next()) check(setup, 3, count + 1);
    }
  }

  TEST_CASE("many tiny segments, worker threads, other chunk lengths, no error feedback, no checksums") {
    const std::uint64_t count = 90001;
    check(setup_of("3lc", count, named_layout(count, {3, 1, 64, 5})), 3, 5);
    Setup setup = setup_of("3lc:zero_run=0", count, named_layout(count, {30000, 11, 50000}));
    setup.threads = 2;
    check(setup, 3, 6);
    setup.chunk = 655360;
    setup.checksum = false;
    check(setup, 8, 7);
    setup.feedback = false;
    check(setup, 2, 8);
  }

  TEST_CASE("without a codec's loss the sum is that of the allgather bit for bit") {
    const std::uint64_t count = 100000;
    Setup setup = setup_of("fp32", count, named_layout(count, {70000, 9}));
    auto ranks = make_ranks(setup, 3, 9);
    auto same = ranks;
    run_all(setup, ranks);
    setup.algorithm = Algorithm::allgather;
    run_all(setup, same);
    for (std::size_t r = 0; r < 3; ++r) CHECK(difference(ranks[r].out, same[r].out) == "");
  }

  TEST_CASE("relays of any base give the bits of the model, on any number of ranks, in chunks and parts of them") {
    Turns turns(19, 43, 67);
    const auto steps = [](int n, int base) {
      int of = 0;
      for (int reach = 1; reach < n; reach *= base) ++of;
      return of;
    };
    for (const auto& codec : all_codecs())
      for (const int n : {2, 3, 5, 7, 8, 12})
        for (const int base : {2, 3, 4, 16}) {
          if (!turns.next()) continue;
          const std::uint64_t count = 100003;
          Setup setup = setup_of(codec->spec(), count,
                                 n % 2 ? Layout::unknown(count) : named_layout(count, {1, 40959, 7, 43000, 3}));
          setup.radix = base;
          setup.in_place = n % 3 == 0;
          setup.threads = n == 3 ? 2 : 1;
          check_calls(setup, n, 11, 2 * steps(n, base) + 2 * steps(n, 2));
        }
  }

  TEST_CASE("relays send a call through MPI together where one rank asks for it") {
    Setup setup = setup_of("3lc", 100003, named_layout(100003, {50000, 17, 1000}));
    setup.radix = 2;
    for (const bool memory : {true, false}) {
      auto ranks = make_ranks(setup, 5, 3);
      const auto before = ranks;
      ranks[3].flags = memory ? kFlagExact : kFlagNoMemory;
      ranks[3].no_memory = !memory;
      run_all(setup, ranks);
      for (std::size_t r = 0; r < 5; ++r) {
        CHECK(ranks[r].result.flags == ranks[3].flags);
        CHECK(difference(ranks[r].residual, before[r].residual) == "");
        CHECK(difference(ranks[r].out, before[r].out) == "");
        CHECK(ranks[r].exchanges == 3);  // the headers' steps
      }
    }
  }

  TEST_CASE("a rank that fails to encode one shard of the first chunk sends all of them through MPI") {
    const Setup setup = setup_of("3lc", 30000, named_layout(30000, {20000}));
    for (const int which : {1, 2, 3}) {
      auto ranks = make_ranks(setup, 3, 4);
      Workers workers(1);
      FailingBackend backend(workers, which);
      ranks[1].backend = &backend;
      const auto before = ranks;
      run_all(setup, ranks);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK(ranks[r].result.flags == kFlagNoMemory);
        CHECK(difference(ranks[r].out, before[r].out) == "");
        CHECK(difference(ranks[r].residual, before[r].residual) == "");
      }
    }
  }

  TEST_CASE("of a tensor without values on an owner what it holds back waits where no rank has any, and only there") {
    const std::uint64_t count = 40960;
    const std::ptrdiff_t first = 25000;
    const Setup setup = setup_of("3lc", count, named_layout(count, {25000, count}));
    for (const bool used : {true, false}) {
      CAPTURE(used);
      auto ranks = make_ranks(setup, 3, 6);
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < count; ++i) ranks[r].owner_residual[i] = 0.01f * static_cast<float>(i % 13);
        const bool idle = r != 1 || !used;
        if (idle) std::fill_n(ranks[r].values.begin(), first, 0.0f);
        ranks[r].idle = {idle, false};
      }
      const auto before = ranks;
      auto model = ranks;
      run_all(setup, ranks);
      const auto expected = model_all(setup, model);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK_FALSE(ranks[r].result.error.has_value());
        if (used) {
          CHECK(difference(ranks[r].out, expected) == "");
          CHECK(difference(ranks[r].owner_residual, model[r].owner_residual) == "");
        } else {
          CHECK(std::all_of(ranks[r].out.begin(), ranks[r].out.begin() + first, [](float x) { return x == 0; }));
          CHECK(std::equal(ranks[r].owner_residual.begin(), ranks[r].owner_residual.begin() + first,
                           before[r].owner_residual.begin()));
        }
      }
    }
  }

  TEST_CASE("over many calls the owners' residuals make the mean of the sums exact") {
    const std::uint64_t count = effort(30000, 30000, 30000, 6000);
    Setup setup = setup_of("3lc", count, named_layout(count, {count}));
    auto ranks = make_ranks(setup, 3, 3);
    std::vector<double> exact(count), mean(count);
    for (const auto& r : ranks)
      for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(r.values[i]);
    const auto error = [&] {
      double of = 0, to = 0;
      for (std::size_t i = 0; i < count; ++i)
        of += (mean[i] - exact[i]) * (mean[i] - exact[i]), to += exact[i] * exact[i];
      return of / to;
    };
    const int calls = 60;
    for (int call = 0; call < calls; ++call) {
      run_all(setup, ranks);
      for (auto& r : ranks) ++r.sequence;
      for (std::size_t i = 0; i < count; ++i) mean[i] += static_cast<double>(ranks[0].out[i]) / calls;
    }
    CHECK(error() < 0.02);
    // Without them it is not.
    for (auto& r : ranks) r.owner_residual.clear();
    std::fill(mean.begin(), mean.end(), 0.0);
    for (int call = 0; call < calls; ++call) {
      run_all(setup, ranks);
      for (std::size_t i = 0; i < count; ++i) mean[i] += static_cast<double>(ranks[0].out[i]) / calls;
    }
    CHECK(error() > 0.05);
  }

  TEST_CASE("a shard corrupted on its way to its owner is named on all ranks and the next call is right") {
    // Three chunks: exchanges 0 headers 0, 1 shards 0, 2 headers 1, 3 shards 1, 4 sum headers 0, ...
    for (const char* spec : {"3lc", "3lc:zero_run=0", "fp16"}) {
      CAPTURE(std::string(spec));
      Setup setup = setup_of(spec, 100003, named_layout(100003, {50000, 17, 1000}));
      auto ranks = tampered(setup, 3, {1, 1, 2});
      for (const auto& r : ranks) {
        REQUIRE(r.result.error.has_value());
        CHECK(r.exchanges == 12);
      }
      CHECK(std::string(ranks[1].result.error->what())
                .find("rank 1 received from rank 2 (call 0, chunk 0) is corrupt: its checksum") != std::string::npos);
      for (const int other : {0, 2})
        CHECK(std::string(ranks[static_cast<std::size_t>(other)].result.error->what())
                  .find("received from rank 1 (call 0, chunk 0) is corrupt: it met a corrupt payload itself") !=
              std::string::npos);
      auto model = ranks;
      run_all(setup, ranks);
      const auto expected = model_all(setup, model);
      for (const auto& r : ranks) {
        CHECK_FALSE(r.result.error.has_value());
        CHECK(difference(r.out, expected) == "");
      }
    }
  }

  // 5 ranks, base 2: the shard of rank 2 for rank 0, 3 ranks upwards, goes to rank 3 in the first step and on in the
  // second; both times behind another. Exchanges: 0 to 2 headers, 3 to 5 shards, 6 to 8 headers of sums, 9 to 11 sums.
  TEST_CASE("a shard corrupted in a relay is blamed on its encoder, by its owner, and the next call is right") {
    for (const char* spec : {"3lc", "fp16"})
      for (const bool lasts : {false, true}) {
        CAPTURE(std::string(spec));
        CAPTURE(lasts);
        Setup setup = setup_of(spec, 100003, named_layout(100003, {20000, 17, 1000}));
        setup.chunk = 102400;
        setup.radix = 2;
        auto ranks = make_ranks(setup, 5, 1);
        RunOptions options;
        options.tamper = [&](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
          const bool first = receiver == 3 && from == 2 && exchange == 3,
                     second = receiver == 0 && from == 3 && exchange == 4;
          if ((lasts ? second : first) && !bytes.empty()) bytes[bytes.size() - 1] ^= 1;
        };
        run_all(setup, ranks, options);
        for (const auto& r : ranks) {
          REQUIRE(r.result.error.has_value());
          CHECK(r.exchanges == 12);
        }
        CHECK(std::string(ranks[0].result.error->what())
                  .find("rank 0 received from rank 2 (call 0, chunk 0) is corrupt: its checksum") != std::string::npos);
        for (std::size_t other = 1; other < 5; ++other)
          CHECK(std::string(ranks[other].result.error->what())
                    .find("received from rank 0 (call 0, chunk 0) is corrupt: it met a corrupt payload itself") !=
                std::string::npos);
        auto model = ranks;
        run_all(setup, ranks);
        const auto expected = model_all(setup, model);
        for (const auto& r : ranks) {
          CHECK_FALSE(r.result.error.has_value());
          CHECK(difference(r.out, expected) == "");
        }
      }
  }

  TEST_CASE("a sum corrupted on its way to one rank is reported there and the others are right") {
    for (const bool checksum : {true, false}) {
      Setup setup = setup_of("3lc:zero_run=0", 40000, named_layout(40000, {40000}));
      setup.checksum = checksum;
      auto model = make_ranks(setup, 3, 1);
      const auto ranks = tampered(setup, 3, {2, 3, 0});
      const auto expected = model_all(setup, model);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK(ranks[r].result.error.has_value() == (r == 2));
        if (r != 2) CHECK(difference(ranks[r].out, expected) == "");
      }
      REQUIRE(ranks[2].result.error.has_value());
      CHECK(std::string(ranks[2].result.error->what())
                .find("rank 2 received from rank 0 (call 0, chunk 0) is corrupt: " +
                      std::string(checksum ? "its checksum" : "a piece of it is malformed")) != std::string::npos);
    }
  }

  TEST_CASE("headers of sums that differ end the call with nothing left under way") {
    const Setup setup = setup_of("3lc", 100003, named_layout(100003, {50000, 17, 1000}));
    auto ranks = make_ranks(setup, 3, 1);
    RunOptions options;
    options.tamper = [](int, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (exchange == 5 && from == 1) bytes[8] ^= 1;  // 5: sum headers of chunk 0
    };
    std::vector<std::string> thrown(3);
    run_ranks(
        3,
        [&](ThreadTransport& transport) {
          Workers workers(1);
          const auto r = static_cast<std::size_t>(transport.rank());
          try {
            call(transport, setup, ranks[r], workers);
          } catch (const Error& e) {
            thrown[r] = e.what();
          }
        },
        options);
    for (const auto& text : thrown) CHECK(text.find("on rank 1 the element count") != std::string::npos);
  }

  TEST_CASE("chunks give every rank a piece and stay within the receive budget") {
    for (const auto& codec : all_codecs())
      for (const int ranks : {2, 8, 100, 4096}) {
        const std::uint64_t pieces = chunk_elements(655360, *codec, ranks, Algorithm::two_shot) / kPieceElements;
        CHECK(pieces >= static_cast<std::uint64_t>(ranks));
        CHECK(chunk_elements(655360, *codec, ranks, Algorithm::two_shot) % kPieceElements == 0);
        if (ranks <= 64) CHECK(pieces % static_cast<std::uint64_t>(ranks) == 0);
      }
    CHECK(chunk_elements(655360, *make_codec("3lc"), 8, Algorithm::two_shot) == 655360);
    CHECK(chunk_elements(655360, *make_codec("3lc"), 5, Algorithm::two_shot) == 665600);
  }
}
