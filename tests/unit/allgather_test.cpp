// The compressed allgather against the model: sums and residuals bit for bit, on every rank.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "core/trace.hpp"
#include "memory/workers.hpp"
#include "support/collective_check.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("allgather") {
  namespace {

  // A header and a body for each chunk.
  void check(const Setup& setup, int n, std::uint64_t seed) { check_calls(setup, n, seed, 2); }

  Setup setup_of(std::shared_ptr<const Codec> codec, std::uint64_t count, std::shared_ptr<const Layout> layout) {
    return {std::move(codec), std::move(layout), count};
  }

  }  // namespace

  TEST_CASE("every codec and number of ranks with unknown and named layouts in and out of place") {
    Turns turns(5, 5, 23);
    for (const auto& codec : all_codecs()) {
      const std::uint64_t count = 100003;
      for (const int n : {1, 2, 3}) {
        Setup setup = setup_of(codec, count, Layout::unknown(count));
        setup.in_place = n != 2;
        setup.feedback = codec->feedback().kept();
        if (turns.next()) check(setup, n, 1);
        // Segments that end anywhere, single elements, and one that spans chunks.
        setup.layout = named_layout(count, {1, 40959, 7, 12345, 43000, 3});
        setup.in_place = n == 2;
        if (turns.next()) check(setup, n, 2);
      }
    }
  }

  TEST_CASE("counts around pieces, blocks and chunks") {
    const auto codec = make_codec("3lc:s=1.5");
    Turns turns(1, 1, 5);
    for (const std::uint64_t count : {0, 1, 5, 160, 161, 10241, 40959, 40960, 40961, 81920, 81921, 163841}) {
      Setup setup = setup_of(codec, count, Layout::unknown(count));
      if (turns.next()) check(setup, 2, count);
      setup.layout = named_layout(count, {count / 2 + 1});
      setup.in_place = true;
      if (turns.next()) check(setup, 2, count + 1);
    }
  }

  TEST_CASE("many tiny segments and one of the whole buffer") {
    const std::uint64_t count = 90001;
    for (const char* spec : {"3lc", "3lc:zero_run=0", "fp16"}) {
      const auto codec = make_codec(spec);
      check(setup_of(codec, count, named_layout(count, {3, 1, 64, 5})), 2, 5);
      check(setup_of(codec, count, named_layout(count, {count})), 3, 6);
    }
  }

  TEST_CASE("chunk sizes and no error feedback") {
    const std::uint64_t count = 200001;
    for (const std::uint64_t chunk : {40960, 81920, 655360}) {
      Setup setup = setup_of(make_codec("3lc"), count, named_layout(count, {70000, 9, 41000}));
      setup.chunk = chunk;
      check(setup, 2, 7);
      setup.feedback = false;
      check(setup, 2, 8);
      setup.layout = Layout::unknown(count);
      check(setup, 2, 9);
    }
  }

  TEST_CASE("eight ranks and worker threads") {
    const std::uint64_t count = 123457;
    Setup setup = setup_of(make_codec("3lc:s=1.75"), count, named_layout(count, {30000, 11, 50000}));
    check(setup, 8, 10);
    setup.threads = 2;
    setup.in_place = true;
    check(setup, 3, 10);
    setup.codec = make_codec("bf16");
    setup.feedback = false;
    check(setup, 8, 11);
  }

  TEST_CASE("with one scale for a whole tensor its chunks do not change the sum") {
    const std::uint64_t count = 150000;
    std::vector<float> first;
    for (const std::uint64_t chunk : {40960, 81920, 163840}) {
      Setup setup = setup_of(make_codec("3lc"), count, named_layout(count, {count}));
      setup.chunk = chunk;
      auto ranks = make_ranks(setup, 2, 12);
      run_all(setup, ranks);
      if (first.empty()) first = ranks[0].out;
      CHECK(difference(ranks[1].out, first) == "");
    }
  }

  TEST_CASE("bytes that are counted are those of the format and exchanges move while encoding") {
    const std::uint64_t count = 100000;
    Setup setup = setup_of(make_codec("bf16"), count, Layout::unknown(count));
    setup.feedback = false;
    auto ranks = make_ranks(setup, 3, 13);
    std::atomic<int> progress{0};
    RunOptions options;
    options.progress_calls = &progress;
    run_all(setup, ranks, options);
    const std::uint64_t bodies = 2 * 81920 + round_up(2 * 18080, 64);
    CHECK(ranks[0].result.sent_bytes == 3 * 64 + bodies);
    CHECK(ranks[0].result.received_bytes == 2 * (3 * 64 + bodies));
    CHECK(progress > 10);
  }

  TEST_CASE("spans of all chunks are traced") {
    const std::uint64_t count = 100000;
    const Setup setup = setup_of(make_codec("fp32"), count, Layout::unknown(count));
    const auto values = make_data(Data::normal, 1, count);
    std::vector<float> out(count);
    Trace trace;
    run_ranks(1, [&](ThreadTransport& transport) {
      Workers workers(1);
      const auto route = route_of(setup, 1);
      Arena arena;
      arena.reserve(route->bytes({}).together);
      const CallBuffers c{.in = values.data(), .out = out.data(), .arena = &arena};
      allreduce_compressed(transport, *route, c, workers, &trace);
    });
    CHECK(difference(out, values) == "");
    const std::string events = trace.events({0, "here", {}});
    for (const char* name : {"\"encode\"", "\"wire\"", "\"under way\"", "\"decode\"", "\"chunk\":2"})
      CHECK(events.find(name) != std::string::npos);
  }

  TEST_CASE("several communicators at once share workers") {
    Workers workers(2);
    std::vector<std::thread> communicators;
    std::atomic<int> wrong{0};
    for (std::uint64_t k = 0; k < 3; ++k)
      communicators.emplace_back([&, k] {
        const std::uint64_t count = 50000 + 1000 * k;
        Setup setup = setup_of(make_codec(k == 1 ? "fp16" : "3lc"), count,
                               k == 2 ? Layout::unknown(count) : named_layout(count, {12000, 5}));
        setup.feedback = k != 1;
        auto ranks = make_ranks(setup, 3, 20 + k);
        auto model = ranks;
        for (int step = 0; step < 3; ++step) {
          run_ranks(3, [&](ThreadTransport& transport) {
            call(transport, setup, ranks[static_cast<std::size_t>(transport.rank())], workers);
          });
          const auto expected = model_all(setup, model);
          for (std::size_t r = 0; r < 3; ++r)
            wrong +=
                ranks[r].out != expected || ranks[r].residual != model[r].residual || ranks[r].result.error.has_value();
        }
      });
    for (auto& t : communicators) t.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("chunks shrink where many ranks' bodies would fill the receive budget") {
    const auto none = make_codec("fp32"), lc = make_codec("3lc");
    CHECK(chunk_elements(655360, *lc, 8) == 655360);
    CHECK(chunk_elements(655360, *none, 2) == 655360);
    const std::uint64_t longest = round_up(std::uint64_t{1} << 30, kPieceElements);  // as CRIMP_CHUNK is
    for (const auto& codec : all_codecs())
      for (const int ranks : {2, 64, 1000, 100000}) {
        const std::uint64_t chunk = chunk_elements(longest, *codec, ranks);
        CHECK(chunk % kPieceElements == 0);
        CHECK(chunk >= kPieceElements);
        CHECK((chunk == kPieceElements ||
               2 * static_cast<std::uint64_t>(ranks) * codec->piece_bound(kPieceElements) * (chunk / kPieceElements) <=
                   kReceiveBudget));
        // And no more than need be: two more pieces of every rank would not fit.
        CHECK((chunk == longest || 2 * static_cast<std::uint64_t>(ranks) *
                                           (codec->piece_bound(kPieceElements) + kPayloadAlign) *
                                           (chunk / kPieceElements + 2) >
                                       kReceiveBudget));
      }
  }
}
