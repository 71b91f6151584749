// Sums of which every rank receives its share: the shares, and the senders' residuals, against the model of
// WIRE_FORMAT.md 6.6, bit for bit; bytes by arithmetic; and what ends a call.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "collective/algorithms.hpp"
#include "collective/one_shot.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/failing_backend.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("reduce_scatter") {
  namespace {

  struct Case {
    Setup setup;
    std::vector<std::uint64_t> counts;  // of each rank's share
    Collective collective = Collective::reduce_scatter;
    std::vector<int> exponents = {};  // of each rank's unit, in one exchange

    int ranks() const { return static_cast<int>(counts.size()); }
    std::shared_ptr<const Shares> shares() const {
      std::vector<std::uint64_t> borders{0};
      for (const std::uint64_t c : counts) borders.push_back(borders.back() + c);
      return std::make_shared<const Shares>(collective, borders);
    }
  };

  Case case_of(const std::string& spec, std::vector<std::uint64_t> counts,
               const std::vector<std::uint64_t>& tensors = {}) {
    const std::uint64_t count = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    Case c{{make_codec(spec), tensors.empty() ? Layout::unknown(count) : named_layout(count, tensors), count},
           std::move(counts)};
    c.setup.feedback = c.setup.codec->feedback().kept();
    c.setup.algorithm = Algorithm::reduce_scatter;
    return c;
  }

  std::shared_ptr<const RoutePlan> route_of(const Case& c) {
    PartPlan part{c.setup.codec.get(), c.setup.layout, c.setup.count, Dtype::f32, c.setup.checksum, c.setup.feedback};
    part.shares = c.shares();
    return plan_route(c.setup.algorithm, part, c.setup.chunk, c.ranks());
  }

  // Every rank's `out` holds its share alone. failing: a rank whose second encoding fails, or another.
  void run(const Case& c, std::vector<Rank>& ranks, const RunOptions& options = {}, int failing = -1, int which = 2) {
    const auto shares = c.shares();
    run_ranks(
        c.ranks(),
        [&](ThreadTransport& transport) {
          Workers workers(c.setup.threads);
          const int r = transport.rank();
          Rank& rank = ranks[static_cast<std::size_t>(r)];
          CallBuffers call;
          call.in = rank.values.data();
          call.out = rank.out.data();
          call.out_begin = shares->of(r).begin;
          call.flags = rank.flags;
          call.sequence = rank.sequence;
          call.exponent = c.exponents.empty() ? 0 : c.exponents[static_cast<std::size_t>(r)];
          if (c.setup.feedback)
            for (const auto& s : c.setup.layout->segments) call.residuals.push_back(rank.residual.data() + s.offset);
          const auto route = route_of(c);
          Arena arena;
          if (!rank.no_memory) arena.reserve(route->bytes({}).together);
          call.arena = rank.no_memory ? nullptr : &arena;
          FailingBackend backend(workers, which);
          if (r == failing) call.backend = &backend;
          rank.result = allreduce_compressed(transport, *route, call, workers);
          rank.exchanges = transport.exchanges();
        },
        options);
  }

  std::vector<Rank> ranks_of(const Case& c, std::uint64_t seed) {
    auto ranks = make_ranks(c.setup, c.ranks(), seed);
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].out.assign(c.counts[r] + 1, 12345.0f);  // and a guard
    return ranks;
  }

  struct Expected {
    std::vector<std::vector<float>> sums;  // each rank's share
    std::vector<std::uint64_t> received;   // bytes of bodies from other ranks
    std::uint64_t chunks = 0;
  };

  // WIRE_FORMAT.md, 6.6. The ranks' residuals become the new ones.
  Expected model(const Case& c, std::vector<Rank>& ranks) {
    const ModelCodec codec(c.setup.codec->spec());
    const std::uint64_t n = c.counts.size(), piece = 10240;
    std::uint64_t rounds = std::max<std::uint64_t>(1, (c.setup.count + c.setup.chunk - 1) / c.setup.chunk);
    Expected expected{std::vector<std::vector<float>>(n), std::vector<std::uint64_t>(n)};
    const auto shares = c.shares();
    for (std::uint64_t i = 0; i < rounds; ++i)
      for (std::uint64_t q = 0; q < n; ++q) {
        const std::uint64_t step = ((c.counts[q] + rounds - 1) / rounds + piece - 1) / piece * piece;
        const std::uint64_t from = std::min(i * step, c.counts[q]), to = std::min((i + 1) * step, c.counts[q]);
        if (from == to) continue;
        expected.chunks = i + 1;
        const std::uint64_t begin = shares->of(static_cast<int>(q)).begin + from, end = begin + to - from;
        std::vector<std::size_t> groups;
        for (const auto& s : c.setup.layout->segments) {
          const std::uint64_t first = std::max(begin, s.offset), last = std::min(end, s.offset + s.count);
          if (first < last) groups.push_back(last - first);
        }
        std::vector<std::vector<float>> contributions;
        for (std::uint64_t r = 0; r < n; ++r) {
          std::vector<float> a(ranks[r].values.begin() + static_cast<std::ptrdiff_t>(begin),
                               ranks[r].values.begin() + static_cast<std::ptrdiff_t>(end));
          auto& residual = ranks[r].residual;
          for (std::size_t k = 0; k < a.size() && !residual.empty(); ++k) a[k] = a[k] + residual[begin + k];
          const ModelBody body = codec.encode(a, groups, {begin, ranks[r].sequence, static_cast<std::uint32_t>(r)});
          if (!residual.empty())
            std::copy(body.residual.begin(), body.residual.end(),
                      residual.begin() + static_cast<std::ptrdiff_t>(begin));
          contributions.push_back(body.decoded);
          if (r != q) expected.received[q] += body.bytes.size();
        }
        const auto sum = model_sum(codec, contributions);
        expected.sums[q].insert(expected.sums[q].end(), sum.begin(), sum.end());
      }
    expected.chunks = std::max<std::uint64_t>(1, expected.chunks);
    for (auto& s : expected.sums) s.push_back(12345.0f);
    return expected;
  }

  void check(const Case& c, std::uint64_t seed) {
    CAPTURE(text_of(c.setup));
    CAPTURE(c.shares()->text());
    CAPTURE(c.counts.size());
    auto ranks = ranks_of(c, seed);
    auto same = ranks;
    for (std::uint32_t step = 0; step < 2; ++step) {
      for (auto* all : {&ranks, &same})
        for (auto& r : *all) r.sequence = step;
      run(c, ranks);
      const Expected expected = model(c, same);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CAPTURE(r);
        CAPTURE(step);
        CHECK(ranks[r].result.flags == 0);
        CHECK_FALSE(ranks[r].result.error.has_value());
        CHECK(difference(ranks[r].out, expected.sums[r]) == "");
        CHECK(difference(ranks[r].residual, same[r].residual) == "");
        CHECK(ranks[r].exchanges == 2 * static_cast<int>(expected.chunks));
        CHECK(ranks[r].result.received_bytes == expected.received[r] + 64 * expected.chunks * (ranks.size() - 1));
      }
      std::uint64_t sent = 0, received = 0;
      for (const Rank& r : ranks) sent += r.result.sent_bytes, received += r.result.received_bytes;
      CHECK(sent == received);
    }
  }

  }  // namespace

  TEST_CASE("bytes for others are what a codec that compresses nothing sends, but for headers and padding") {
    using Counts = std::vector<std::uint64_t>;
    for (const Algorithm algorithm :
         {Algorithm::reduce_scatter, Algorithm::one_shot, Algorithm::allgather, Algorithm::two_shot})
      for (const Counts& counts : {Counts{100000, 100001, 99000}, {0, 300000, 0}, {1, 200000, 0, 50000}}) {
        Case c = case_of("fp32", counts);
        c.setup.algorithm = algorithm;
        const bool shares = algorithm == Algorithm::reduce_scatter || algorithm == Algorithm::one_shot;
        const auto route = shares ? route_of(c) : route_of(c.setup, c.ranks());
        CAPTURE(route->name);
        auto ranks = make_ranks(c.setup, c.ranks(), 5);
        if (shares) run(c, ranks);
        else run_all(c.setup, ranks);
        for (int r = 0; r < c.ranks(); ++r) {
          CAPTURE(r);
          const std::uint64_t all = c.setup.count, own = shares ? counts[static_cast<std::size_t>(r)] : 0;
          CHECK(bytes_for_others(route->part, r) == sizeof(float) * (all - own));
          const std::uint64_t sent = ranks[static_cast<std::size_t>(r)].result.sent_bytes;
          CHECK(sent >= sizeof(float) * (all - own));
          CHECK(sent < 1.01 * sizeof(float) * static_cast<double>(all - own) + 64 * 64);
        }
      }
    // Tensors of other parts are no part's.
    Case c = case_of("fp32", {10, 20}, {5, 20, 5});
    PartPlan part = route_of(c)->part;
    part.layout = changed(*c.setup.layout, Layout::Source::named, [](auto& s) { s[1].use = Segment::Use::skip; });
    CHECK(bytes_for_others(part, 0) == 4 * 5);
    CHECK(bytes_for_others(part, 1) == 4 * 5);
    part.dtype = Dtype::f64, part.shares = nullptr;
    CHECK(bytes_for_others(part, 1) == 8 * 10);
  }

  // The parts of a tensor in shares shorter than a piece have no state of their own.
  TEST_CASE("of shares codecs that would reuse a threshold select anew in each call") {
    std::vector<std::vector<float>> sums[2];
    for (const bool reuses : {false, true}) {
      const Case c = case_of(reuses ? "topk:ratio=0.01,reuse=16" : "topk:ratio=0.01",
                             std::vector<std::uint64_t>(16, 4096), {65536});
      auto ranks = ranks_of(c, 7);
      std::vector<std::vector<float>> memory(ranks.size());
      for (auto& of : memory) of.assign(c.setup.codec->feedback_elements(65536), 0.0f);
      const auto shares = c.shares();
      const auto route = route_of(c);
      for (std::uint32_t step = 0; step < 5; ++step) {
        run_ranks(c.ranks(), [&](ThreadTransport& transport) {
          Workers workers(1);
          const auto r = static_cast<std::size_t>(transport.rank());
          CallBuffers call;
          call.in = ranks[r].values.data();
          call.out = ranks[r].out.data();
          call.out_begin = shares->of(transport.rank()).begin;
          call.sequence = step;
          call.residuals = {memory[r].data()};
          call.turns = {step};
          Arena arena;
          arena.reserve(route->bytes({}).together);
          call.arena = &arena;
          const auto result = allreduce_compressed(transport, *route, call, workers);
          CHECK_FALSE(result.error);
          CHECK(result.flags == 0);
        });
        for (const Rank& rank : ranks) sums[reuses].push_back(rank.out);
        // Another gradient in each step, so that what is left of an old threshold is far off.
        for (std::size_t r = 0; r < ranks.size(); ++r)
          for (std::size_t i = 0; i < ranks[r].values.size(); ++i)
            ranks[r].values[i] *= i / 4096 % 2 == step % 2 ? 1.7f : 0.4f;
      }
    }
    CHECK(sums[0] == sums[1]);
  }

  TEST_CASE("every codec on 1 to 5 ranks with even and uneven shares, of unknown and named tensors") {
    Turns turns(7, 7, 37);
    const std::vector<std::vector<std::uint64_t>> shares{
        {100003}, {50000, 50003}, {0, 100000, 3}, {25000, 25000, 25000, 25000}, {1, 90000, 0, 160, 10240}};
    for (const auto& codec : all_codecs()) {
      if (codec->traits().whole_tensors) continue;
      for (const auto& counts : shares) {
        if (turns.next()) check(case_of(codec->spec(), counts), 1);
        if (turns.next()) check(case_of(codec->spec(), counts, {1, 40959, 7, 12345, 43000, 3}), 2);
      }
    }
  }

  TEST_CASE("a share of all for one rank, whichever") {
    for (const char* spec : {"3lc", "fp16", "topk:ratio=0.01"})
      for (std::size_t root = 0; root < 3; ++root) {
        std::vector<std::uint64_t> counts(3);
        counts[root] = 130001;
        Case c = case_of(spec, counts);
        c.collective = Collective::reduce;
        CHECK(c.shares()->text() == "reduce to " + std::to_string(root));
        check(c, 3 + root);
        // The root alone receives bodies; fp16 has two bytes a value, a multiple of 64 for each chunk's body.
        if (std::string(spec) != "fp16") continue;
        auto ranks = ranks_of(c, 9);
        run(c, ranks);
        const std::uint64_t headers = 2 * 64 * 4;  // 130001 elements are four chunks of 40960
        for (std::size_t r = 0; r < 3; ++r) {
          CHECK(ranks[r].result.received_bytes >= headers + (r == root ? 2 * 2 * 130001 : 0));
          CHECK(ranks[r].result.received_bytes <= headers + (r == root ? 2 * (2 * 130001 + 4 * 64) : 0));
        }
      }
  }

  TEST_CASE("counts around pieces and chunks, worker threads, one chunk, no error feedback, no checksums") {
    Turns turns(1, 1, 3);
    for (const std::uint64_t count : {0, 1, 5, 10240, 10241, 20480, 40960, 40961, 81921, 163841})
      if (turns.next()) check(case_of("3lc:s=1.5", {count, count / 3, count}, {count / 2 + 1}), count);
    Case c = case_of("3lc:zero_run=0", {30001, 30001, 30001}, {3, 1, 64, 5});
    c.setup.threads = 2;
    check(c, 5);
    c.setup.chunk = 655360;
    c.setup.checksum = false;
    check(c, 6);
    c.setup.feedback = false;
    check(c, 7);
  }

  TEST_CASE("without a codec's loss every share is that of the allgather bit for bit") {
    Case c = case_of("fp32", {40000, 1, 59999}, {70000, 9});
    auto ranks = ranks_of(c, 9);
    Setup all = c.setup;
    all.algorithm = Algorithm::allgather;
    auto whole = make_ranks(all, 3, 9);
    run(c, ranks);
    run_all(all, whole);
    for (std::size_t r = 0; r < 3; ++r) {
      const auto share = c.shares()->of(static_cast<int>(r));
      const std::vector<float> wanted(whole[0].out.begin() + static_cast<std::ptrdiff_t>(share.begin),
                                      whole[0].out.begin() + static_cast<std::ptrdiff_t>(share.end));
      ranks[r].out.pop_back();
      CHECK(difference(ranks[r].out, wanted) == "");
    }
  }

  TEST_CASE("one exchange has the bits of reduce_scatter's, and its bytes are known before") {
    for (const char* spec : {"fp16", "3lc", "8bit", "thc", "qsgd", "topk", "fp32"})
      for (const auto& counts :
           {std::vector<std::uint64_t>{40000, 20003}, {0, 50000, 3}, {1, 30000, 0, 160, 10240}, {0, 0, 70001}}) {
        Case c = case_of(spec, counts);
        c.setup.chunk = 16 * kPieceElements;
        c.setup.feedback = false;
        auto scattered = ranks_of(c, 5), once = scattered;
        run(c, scattered);
        c.setup.algorithm = Algorithm::one_shot;
        const auto route = route_of(c);
        run(c, once);
        CAPTURE(spec);
        CAPTURE(c.shares()->text());
        std::uint64_t sent = 0, received = 0, most = 0;
        for (std::size_t r = 0; r < once.size(); ++r) {
          CHECK(once[r].result.flags == 0);
          CHECK_FALSE(once[r].result.error.has_value());
          CHECK(difference(once[r].out, scattered[r].out) == "");
          CHECK(once[r].exchanges == 1);
          CHECK((once[r].result.received_bytes == 0) == (counts[r] == 0));
          sent += once[r].result.sent_bytes, received += once[r].result.received_bytes;
          most = std::max({most, once[r].result.sent_bytes, once[r].result.received_bytes});
        }
        CHECK(sent == received);
        const OneShotTraffic traffic = one_shot_traffic(*route);
        CHECK(traffic.moved == most);
        CHECK(traffic.frames == once.size() * frame_bytes(*route));
      }
    // Plain MPI: who has the largest share receives it, who has the smallest sends all others.
    Case c = case_of("fp16", {30000, 10000, 0});
    c.setup.algorithm = Algorithm::one_shot;
    CHECK(one_shot_traffic(*route_of(c)).plain == 4 * 40000);
  }

  TEST_CASE("one exchange of shares: each rank's values in a unit of their own, and a flag of one for all") {
    Case c = case_of("fp32", {12001, 0, 20000});
    c.setup.algorithm = Algorithm::one_shot;
    c.exponents = {5, -3, 0};
    auto ranks = ranks_of(c, 7);
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t i = 0; i < c.setup.count; ++i)
        ranks[r].values[i] = static_cast<float>((i * 7 + r) % 64);  // whole numbers: no sum is rounded
    const auto before = ranks;
    run(c, ranks);
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(ranks[r].out.back() == 12345.0f);
      CHECK(ranks[r].result.exponent == (c.counts[r] ? 5 : 0));
      const std::uint64_t begin = c.shares()->of(static_cast<int>(r)).begin;
      for (std::size_t i = 0; i < c.counts[r]; ++i) {
        double sum = 0;
        for (std::size_t q = 0; q < 3; ++q)
          sum += std::ldexp(static_cast<double>(before[q].values[begin + i]), c.exponents[q]);
        REQUIRE(std::ldexp(static_cast<double>(ranks[r].out[i]), 5) == sum);
      }
    }
    for (std::size_t who = 0; who < 3; ++who) {
      auto flagged = before;
      flagged[who].flags = kFlagExact;
      run(c, flagged);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK(flagged[r].result.flags == (c.counts[r] ? kFlagExact : 0));  // who receives nothing hears nothing
        CHECK(difference(flagged[r].out, before[r].out) == "");
      }
    }
  }

  TEST_CASE("one exchange of shares: a corrupt body is its receiver's error, a failed encoding everybody's") {
    Case c = case_of("3lc", {50000, 50000, 50000});
    c.setup.algorithm = Algorithm::one_shot;
    c.setup.feedback = false;
    auto ranks = ranks_of(c, 1);
    RunOptions options;
    options.tamper = [](int receiver, int, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && from == 2) bytes[80] ^= 255;
    };
    run(c, ranks, options);
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks[r].result.error.has_value() == (r == 1));
    REQUIRE(ranks[1].result.error);
    CHECK(std::string(ranks[1].result.error->what()).find("from rank 2") != std::string::npos);
    auto failing = ranks_of(c, 1);
    run(c, failing, {}, 1);
    for (const Rank& r : failing) CHECK(r.result.flags == kFlagNoMemory);
    for (const int which : {0, -1}) {
      failing = ranks_of(c, 1);
      run(c, failing, {}, 1, which);
      for (std::size_t r = 0; r < 3; ++r) CHECK(failing[r].result.error.has_value() == (r == 1));
      REQUIRE(failing[1].result.error);
      CHECK(failing[1].result.error->code() == ErrorCode::out_of_memory);
    }
  }

  TEST_CASE("one rank's flag, or want of memory, ends the call for all, and nothing has changed") {
    for (const bool memory : {false, true})
      for (std::size_t who = 0; who < 3; ++who) {
        const Case c = case_of("3lc", {0, 100003, 20});
        auto ranks = ranks_of(c, 4);
        for (auto& r : ranks) r.residual.assign(r.residual.size(), 0.25f);
        const auto before = ranks;
        ranks[who].flags = memory ? kFlagNoMemory : kFlagExact;
        ranks[who].no_memory = memory;
        run(c, ranks);
        for (std::size_t r = 0; r < 3; ++r) {
          CHECK(ranks[r].result.flags == ranks[who].flags);
          CHECK(difference(ranks[r].out, before[r].out) == "");
          CHECK(difference(ranks[r].residual, before[r].residual) == "");
        }
      }
  }

  TEST_CASE("a rank that fails to encode one share of the first chunk sends all of them through MPI") {
    const Case c = case_of("3lc", {30000, 30000, 30000});
    auto ranks = ranks_of(c, 4);
    const auto before = ranks;
    run(c, ranks, {}, 1);
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(ranks[r].result.flags == kFlagNoMemory);
      CHECK(difference(ranks[r].out, before[r].out) == "");
      CHECK(difference(ranks[r].residual, before[r].residual) == "");
    }
  }

  TEST_CASE("ranks with other shares of as many elements are told so, all of them") {
    int told = 0;
    std::mutex mutex;
    run_ranks(3, [&](ThreadTransport& transport) {
      Case c = case_of("fp16", transport.rank() == 2 ? std::vector<std::uint64_t>{0, 50000, 0}
                                                     : std::vector<std::uint64_t>{50000, 0, 0});
      c.collective = Collective::reduce;
      Workers workers(1);
      std::vector<float> in(50000), out(50000);
      const auto route = route_of(c);
      Arena arena;
      arena.reserve(route->bytes({}).together);
      CallBuffers call;
      call.in = in.data();
      call.out = out.data();
      call.out_begin = c.shares()->of(transport.rank()).begin;
      call.arena = &arena;
      try {
        allreduce_compressed(transport, *route, call, workers);
      } catch (const Error& e) {
        std::lock_guard lock(mutex);
        told += e.code() == ErrorCode::call_differs && std::string(e.what()).find("MPI_Reduce:") != std::string::npos;
      }
    });
    CHECK(told == 3);
  }

  TEST_CASE("a header that announces a longer body than there can be is an error, and no more is received") {
    const Case c =
        case_of("fp16", std::vector<std::uint64_t>(3, kPieceElements));  // all bodies are as long as their bound
    auto ranks = ranks_of(c, 1);
    RunOptions options;
    options.tamper = [](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && exchange == 0 && from == 2) announce_more(bytes, kPayloadAlign);
    };
    run(c, ranks, options);
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks[r].result.error.has_value() == (r == 1));
    REQUIRE(ranks[1].result.error);
    CHECK(ranks[1].result.error->code() == ErrorCode::payload_corrupt);
    CHECK(std::string(ranks[1].result.error->what()).find("are due") != std::string::npos);
  }

  TEST_CASE("a body that arrives corrupt is the error of who received it, and names the sender") {
    const Case c = case_of("3lc", {50000, 50000, 50000});
    auto ranks = ranks_of(c, 1);
    RunOptions options;
    options.tamper = [](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && exchange == 1 && from == 2 && !bytes.empty()) bytes[bytes.size() / 2] ^= 255;
    };
    run(c, ranks, options);
    for (std::size_t r = 0; r < 3; ++r) CHECK(ranks[r].result.error.has_value() == (r == 1));
    REQUIRE(ranks[1].result.error);
    CHECK(ranks[1].result.error->code() == ErrorCode::payload_corrupt);
    CHECK(std::string(ranks[1].result.error->what()).find("from rank 2") != std::string::npos);
  }
}
