// What must happen on all ranks alike when one of them cannot go on: before the first body, alike in all algorithms.
#include <doctest/doctest.h>

#include "collective/algorithms.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/effort.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("allgather_failures") {
  namespace {

  Setup three_chunks(const std::string& spec, Algorithm algorithm = Algorithm::allgather) {
    const std::uint64_t count = 100003;
    Setup setup{make_codec(spec), named_layout(count, {50000, 17, 1000}), count};
    setup.algorithm = algorithm;
    return setup;
  }

  void give_residuals(std::vector<Rank>& ranks) {
    for (auto& r : ranks)
      for (std::size_t i = 0; i < r.residual.size(); ++i) r.residual[i] = 0.001f * static_cast<float>(i % 7);
  }

  // The call on every rank with a setup of its own; what each one threw.
  std::vector<std::string> errors_of(const std::vector<Setup>& setups, std::vector<Rank>& ranks) {
    std::vector<std::string> errors(ranks.size());
    run_ranks(static_cast<int>(ranks.size()), [&](ThreadTransport& transport) {
      const auto r = static_cast<std::size_t>(transport.rank());
      Workers workers(1);
      try {
        call(transport, setups[r], ranks[r], workers);
      } catch (const Error& e) {
        errors[r] = std::string(name_of(e.code())) + ": " + e.what();
      }
      ranks[r].exchanges = transport.exchanges();
    });
    return errors;
  }

  }  // namespace

  TEST_CASE("flags of one rank send all ranks through MPI after one exchange and nothing has changed") {
    Turns turns(1, 1, 5);
    for (const auto& algorithm : carriers())
      for (const char* spec : {"fp32", "fp16", "3lc", "3lc:zero_run=0"})
        for (const int n : {1, 2, 3})
          for (const std::uint8_t flags : {kFlagExact, kFlagNoMemory}) {
            if (!algorithm.why_unsupported(*make_codec(spec), n).empty() || !turns.next()) continue;
            Setup setup = three_chunks(spec, algorithm.algorithm);
            CAPTURE(std::string(algorithm.name));
            for (const bool in_place : {false, true}) {
              CAPTURE(std::string(spec));
              CAPTURE(n);
              CAPTURE(flags);
              setup.in_place = in_place;
              auto ranks = make_ranks(setup, n, 1);
              give_residuals(ranks);
              Rank& bad = ranks.back();
              bad.flags = flags;
              bad.no_memory = flags == kFlagNoMemory;
              const auto before = ranks;
              run_all(setup, ranks);
              for (std::size_t r = 0; r < ranks.size(); ++r) {
                CHECK(ranks[r].result.flags == flags);
                CHECK_FALSE(ranks[r].result.error.has_value());
                CHECK(ranks[r].exchanges == 1);
                CHECK(difference(ranks[r].residual, before[r].residual) == "");
                CHECK(difference(ranks[r].owner_residual, before[r].owner_residual) == "");
                CHECK(difference(ranks[r].out, in_place ? before[r].values : before[r].out) == "");
              }
            }
          }
  }

  TEST_CASE("flags of several ranks are united") {
    const Setup setup = three_chunks("3lc");
    auto ranks = make_ranks(setup, 3, 1);
    ranks[0].flags = kFlagExact;
    ranks[2].flags = kFlagNoMemory;
    ranks[2].no_memory = true;
    run_all(setup, ranks);
    for (const auto& r : ranks) CHECK(r.result.flags == (kFlagExact | kFlagNoMemory));
  }

  TEST_CASE("a call after one that went through MPI is right") {
    Setup setup = three_chunks("3lc");
    auto ranks = make_ranks(setup, 3, 1);
    auto model = ranks;
    run_all(setup, ranks);
    model_all(setup, model);
    ranks[1].flags = kFlagExact;
    run_all(setup, ranks);
    ranks[1].flags = 0;
    run_all(setup, ranks);
    const auto expected = model_all(setup, model);
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(difference(ranks[r].out, expected) == "");
      CHECK(difference(ranks[r].residual, model[r].residual) == "");
    }
  }

  TEST_CASE("ranks in different calls are told so on every rank and no residual changes") {
    const auto differing = [](auto change, const char* what) {
      for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot})
        for (const std::size_t odd : {0, 1, 2}) {
          std::vector<Setup> setups(3, three_chunks("3lc", algorithm));
          auto ranks = make_ranks(setups[0], 3, 1);
          give_residuals(ranks);
          change(setups[odd], ranks[odd]);
          const auto before = ranks;
          const auto errors = errors_of(setups, ranks);
          for (std::size_t r = 0; r < 3; ++r) {
            CAPTURE(odd);
            CAPTURE(errors[r]);
            CHECK(errors[r].starts_with("call_differs"));
            CHECK(errors[r].find(what) != std::string::npos);
            CHECK(errors[r] == errors[0]);
            CHECK((errors[r].find(", on rank 0 ") != errors[r].npos ||
                   errors[r].find("than on rank 0") != errors[r].npos));
            CHECK(errors[r].find("here") == std::string::npos);
            CHECK(errors[r].find(odd == 0 ? "rank 1" : "rank " + std::to_string(odd)) != std::string::npos);
            CHECK(ranks[r].exchanges == 1);
            CHECK(difference(ranks[r].residual, before[r].residual) == "");
          }
        }
    };
    differing([](Setup&, Rank& r) { r.sequence = 7; }, "call number");
    differing([](Setup& s, Rank&) { s.codec = make_codec("3lc:zero_run=0"); }, "parameter");
    differing([](Setup& s, Rank&) { s.codec = make_codec("bf16"); }, "the codec is ");
    differing(
        [](Setup& s, Rank&) {
          s.layout = Layout::make(Layout::Source::unknown, {{"x", 0, s.count}});
          s.feedback = false;
        },
        "the tensors' names");
    differing(
        [](Setup& s, Rank& r) {
          s.count = 40000;
          s.layout = named_layout(s.count, {s.count});
          r.values.resize(s.count);
          r.out.resize(s.count);
        },
        "the element count is ");
    // The first chunks look alike; the layout tells.
    differing(
        [](Setup& s, Rank& r) {
          s.count = 99999;
          s.layout = named_layout(s.count, {50000, 17, 1000});
          r.values.resize(s.count);
          r.out.resize(s.count);
        },
        "sizes");
  }

  TEST_CASE("a rank that disagrees and has a flag does not hide the disagreement") {
    std::vector<Setup> setups(2, three_chunks("3lc"));
    auto ranks = make_ranks(setups[0], 2, 1);
    ranks[1].sequence = 1;
    ranks[1].flags = kFlagExact;
    for (const auto& e : errors_of(setups, ranks)) CHECK(e.starts_with("call_differs"));
  }

  TEST_CASE("what has no header is said of the rank that it came from, and blames no pair of ranks") {
    for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::one_shot})
      for (const int from : {0, 2}) {
        CAPTURE(from);
        Setup setup{make_codec("fp16"), named_layout(20000, {20000}), 20000};
        setup.algorithm = algorithm;
        auto ranks = make_ranks(setup, 3, 1);
        RunOptions options;
        options.tamper = [from](int, int exchange, int sender, std::span<std::uint8_t> bytes) {
          if (exchange == 0 && sender == from) bytes[0] ^= 1;
        };
        std::vector<std::string> errors(3);
        run_ranks(
            3,
            [&](ThreadTransport& transport) {
              const auto r = static_cast<std::size_t>(transport.rank());
              Workers workers(1);
              try {
                call(transport, setup, ranks[r], workers);
              } catch (const Error& e) {
                errors[r] = std::string(name_of(e.code())) + ": " + e.what();
              }
            },
            options);
        for (const std::string& error : errors) {
          CAPTURE(error);
          CHECK(error.starts_with("call_differs: "));
          CHECK(error.find("not in the same MPI_Allreduce") != error.npos);
          CHECK(error.find("Counts or types differ") != error.npos);
          CHECK(error.find("came as rank " + std::to_string(from) + "'s") != error.npos);
          CHECK(error.find("and rank 0 are") == error.npos);
        }
      }
  }

  TEST_CASE("headers that differ in a later chunk end the call with nothing left under way") {
    RunOptions options;
    const Setup setup = three_chunks("3lc");
    auto ranks = make_ranks(setup, 3, 1);
    // Exchanges in order: headers 0, bodies 0, headers 1, bodies 1, headers 2.
    options.tamper = [](int, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (exchange == 4 && from == 1) bytes[8] ^= 1;
    };
    std::vector<int> thrown(3);
    run_ranks(
        3,
        [&](ThreadTransport& transport) {
          const auto r = static_cast<std::size_t>(transport.rank());
          Workers workers(1);
          try {
            call(transport, setup, ranks[r], workers);
          } catch (const Error& e) {
            thrown[r] = e.code() == ErrorCode::call_differs;
          }
        },
        options);
    CHECK(thrown == std::vector<int>(3, 1));
  }

  TEST_CASE("a body corrupted on its way to one rank is reported there and the others are right") {
    for (const char* spec : {"3lc", "3lc:zero_run=0", "fp16"})
      for (const int bodies : {1, 3, 5})  // of chunk 0, 1, 2
        for (const bool checksum : {true, false}) {
          CAPTURE(std::string(spec));
          CAPTURE(bodies);
          if (!checksum && std::string(spec) == "fp16") continue;  // any bits are values
          Setup setup = three_chunks(spec);
          setup.checksum = checksum;
          auto ranks = make_ranks(setup, 3, 1);
          auto model = ranks;
          RunOptions options;
          options.tamper = [&](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
            if (receiver != 1 || exchange != bodies || from != 2) return;
            // Without checksums only what breaks the format can be found: here the sign of a scale.
            if (checksum) {
              bytes[bytes.size() / 2] ^= 0x40;
            } else {
              bytes[(setup.codec->traits().fixed_size ? 0u : 64u) + 3] |= 0x80;
            }
          };
          run_all(setup, ranks, options);
          const auto expected = model_all(setup, model);
          for (std::size_t r = 0; r < 3; ++r) {
            CAPTURE(r);
            CHECK(ranks[r].exchanges == 6);
            CHECK(difference(ranks[r].residual, model[r].residual) == "");
            if (r == 1) {
              REQUIRE(ranks[r].result.error.has_value());
              CHECK(ranks[r].result.error->code() == ErrorCode::payload_corrupt);
              const std::string text = ranks[r].result.error->what();
              CHECK(text.find("rank 1 received from rank 2") != std::string::npos);
              CHECK(text.find("chunk " + std::to_string(bodies / 2)) != std::string::npos);
              CHECK(text.find(checksum ? "checksum" : "malformed") != std::string::npos);
            } else {
              CHECK_FALSE(ranks[r].result.error.has_value());
              CHECK(difference(ranks[r].out, expected) == "");
            }
          }
        }
  }

  TEST_CASE("a header that announces a longer body than there can be is an error, and no more is received") {
    using enum Algorithm;
    struct Announced {
      const char* spec;  // fp16: bodies are as long as their bound
      Algorithm algorithm;
      int exchange, receiver;  // receiver -1: all of them
      std::uint64_t more;
    };
    for (const Announced& of : std::initializer_list<Announced>{{"fp16", allgather, 0, 1, kPayloadAlign},
                                                                {"3lc", allgather, 0, -1, 1 << 20},
                                                                {"fp16", two_shot, 0, 1, kPayloadAlign},
                                                                {"fp16", two_shot, 2, 1, kPayloadAlign},
                                                                {"fp16", one_shot, 0, 1, kPayloadAlign}}) {
      CAPTURE(std::string(of.spec));
      CAPTURE(of.algorithm);
      CAPTURE(of.exchange);
      const std::uint64_t count = 3 * kPieceElements;
      Setup setup{make_codec(of.spec), named_layout(count, {count}), count};
      setup.algorithm = of.algorithm;
      auto ranks = make_ranks(setup, 3, 1);
      RunOptions options;
      options.tamper = [&](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
        if (exchange == of.exchange && from == 0 && (of.receiver < 0 || receiver == of.receiver))
          announce_more(bytes, of.more);
      };
      run_all(setup, ranks, options);
      REQUIRE(ranks[1].result.error.has_value());
      CHECK(ranks[1].result.error->code() == ErrorCode::payload_corrupt);
      const std::string text = ranks[1].result.error->what();
      CHECK(text.find("rank 1 received from rank 0") != std::string::npos);
      CHECK(text.find("are due") != std::string::npos);
    }
  }

  TEST_CASE("a malformed piece whose sender hashed it is reported on every rank") {
    // What a defective sender would send: no checksum, a run where none may be.
    Setup setup = three_chunks("3lc:zero_run=0");
    setup.checksum = false;
    auto ranks = make_ranks(setup, 2, 1);
    RunOptions options;
    options.tamper = [](int, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (exchange == 3 && from == 0) bytes[1000] = 255;
    };
    run_all(setup, ranks, options);
    for (const auto& r : ranks) {
      REQUIRE(r.result.error.has_value());
      CHECK(std::string(r.result.error->what())
                .find("from rank 0 (call 0, chunk 1) is corrupt: a piece of it is malformed") != std::string::npos);
    }
  }
}
