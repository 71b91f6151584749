// Nodes of ranks: exact sums within a node, any algorithm between leaders; results, leaders' residuals, and failures on
// every rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "collective/algorithms.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/effort.hpp"
#include "support/failing_backend.hpp"
#include "support/thread_node.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("hierarchical") {
  namespace {

  Setup setup_of(const std::string& spec, std::uint64_t count, Algorithm inner) {
    Setup setup{make_codec(spec), named_layout(count, {50000, 17, 1000}), count};
    setup.feedback = setup.codec->feedback().kept();
    setup.algorithm = inner;
    return setup;
  }

  // The whole communicator's transport, which is not used.
  struct Nowhere final : Transport {
    [[noreturn]] static Ticket used() { throw std::logic_error("the whole communicator was used"); }
    int rank() const override { used(); }
    int size() const override { used(); }
    Ticket start_allgather(const void*, void*, std::uint64_t) override { used(); }
    Ticket start_allgatherv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>,
                            void*) override {
      used();
    }
    Ticket start_alltoallv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>, void*,
                           std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {
      used();
    }
    Ticket start_sum(const void*, void*, std::uint64_t, Integer) override { used(); }
    void wait(Ticket) override { used(); }
    bool done(Ticket) override { used(); }
    void progress() noexcept override {}
  };

  // One rank of two nodes of two, in the first node, comes to a call when all others wait, and a while later.
  class LateRank {
   public:
    explicit LateRank(std::size_t late) : late_(late) {}
    void call(std::size_t rank, ThreadNode& node, ThreadTransport* leaders, const std::function<void()>& of_rank) {
      node.meeting = [this, rank] { ++meetings_[rank]; };
      if (leaders && rank == 2) leaders->waiting = [this] { leader_waits_ = true; };
      if (rank == late_) be_late();
      const auto begun = Clock::now();
      of_rank();
      took_s[rank] = seconds(Clock::now() - begun);
    }
    std::array<double, 4> took_s{};  // each rank's call
    double waited_s = 0;             // the others, at least

   private:
    void be_late() {
      const auto all_wait = [&] {
        return meetings_[1 - late_] == 1 && leader_waits_ && meetings_[3] == meetings_[2] + 1;
      };
      while (!all_wait()) std::this_thread::yield();
      const auto begun = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      waited_s = seconds(Clock::now() - begun);
    }
    const std::size_t late_;
    std::array<std::atomic<int>, 4> meetings_{};
    std::atomic<bool> leader_waits_ = false;
  };

  // One rank's call; what it threw.
  std::string call_in_nodes(const Setup& setup, Rank& rank, ThreadNode& node, ThreadTransport* leaders, int nodes) {
    const auto route = in_nodes(route_of(setup, nodes), {&node, leaders, nodes});
    CallBuffers c = buffers_of(setup, rank);
    if (leaders && setup.feedback)
      for (const auto& s : setup.layout->segments) {
        c.residuals.push_back(rank.residual.data() + s.offset);
        if (!rank.owner_residual.empty()) c.owner_residuals.push_back(rank.owner_residual.data() + s.offset);
      }
    Arena arena;
    Workers workers(1);
    if (!rank.no_memory) arena.reserve(route->bytes({}).together);
    c.arena = rank.no_memory ? nullptr : &arena;
    try {
      Nowhere all;
      rank.result = allreduce_compressed(all, *route, c, workers);
    } catch (const Error& e) {
      return std::string(name_of(e.code())) + ": " + e.what();
    }
    return {};
  }

  // One call of ranks in nodes, each with a setup of its own, whoever is late; what each rank threw.
  std::vector<std::string> run_in_nodes(const std::vector<Setup>& setups, std::vector<Rank>& ranks, int per_node,
                                        const NodeOptions& options = {}, LateRank* late = nullptr) {
    std::vector<std::string> thrown(ranks.size());
    const int nodes = static_cast<int>(ranks.size()) / per_node;
    run_nodes(
        nodes, per_node,
        [&](int rank, ThreadNode& node, ThreadTransport* leaders) {
          const auto r = static_cast<std::size_t>(rank);
          const auto call = [&] { thrown[r] = call_in_nodes(setups[r], ranks[r], node, leaders, nodes); };
          if (late) late->call(r, node, leaders, call);
          else call();
        },
        options);
    return thrown;
  }
  std::vector<std::string> run_in_nodes(const Setup& setup, std::vector<Rank>& ranks, int per_node,
                                        const NodeOptions& options = {}, LateRank* late = nullptr) {
    return run_in_nodes(std::vector<Setup>(ranks.size(), setup), ranks, per_node, options, late);
  }

  // The leaders as ranks of their own, with their nodes' sums.
  std::vector<Rank> leaders_of(const std::vector<Rank>& ranks, int per_node) {
    std::vector<Rank> leaders;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (r % static_cast<std::size_t>(per_node) == 0) {
        leaders.push_back(ranks[r]);
        continue;
      }
      for (std::size_t i = 0; i < ranks[r].values.size(); ++i) leaders.back().values[i] += ranks[r].values[i];
    }
    return leaders;
  }

  }  // namespace

  TEST_CASE("sums and leaders' residuals are the model's on every rank") {
    Turns turns(3, 5, 17);
    for (const char* spec : {"fp32", "fp16", "3lc"})
      for (const Algorithm inner : {Algorithm::allgather, Algorithm::two_shot})
        for (const auto& shape : {std::pair{1, 3}, {2, 1}, {2, 2}, {3, 4}})
          for (const std::uint64_t count : {0, 7, 100003, 200000}) {
            if (!turns.next()) continue;
            const int nodes = shape.first, per_node = shape.second;
            CAPTURE(std::string(spec));
            CAPTURE(nodes);
            CAPTURE(per_node);
            CAPTURE(count);
            Setup setup = setup_of(spec, count, inner);
            setup.in_place = nodes == 2;
            auto ranks = make_ranks(setup, nodes * per_node, count + 1);
            auto model = leaders_of(ranks, per_node);
            for (std::uint32_t step = 0; step < 2; ++step) {
              for (auto& r : ranks) r.sequence = step;
              for (auto& r : model) r.sequence = step;
              for (const auto& text : run_in_nodes(setup, ranks, per_node)) CHECK(text == "");
              const auto expected = model_all(setup, model);
              for (std::size_t r = 0; r < ranks.size(); ++r) {
                CHECK_FALSE(ranks[r].result.error.has_value());
                CHECK(ranks[r].result.flags == 0);
                CHECK(difference(ranks[r].out, expected) == "");
                if (r % static_cast<std::size_t>(per_node) == 0)
                  CHECK(difference(ranks[r].residual, model[r / static_cast<std::size_t>(per_node)].residual) == "");
              }
            }
          }
  }

  TEST_CASE("waiting for a late rank of the node is the wire's, not the codec's, nor the network's") {
    for (const std::size_t late : {0u, 1u}) {
      CAPTURE(late);
      const Setup setup = setup_of("3lc", 100003, Algorithm::allgather);
      auto ranks = make_ranks(setup, 4, 1);
      LateRank times(late);
      for (const auto& text : run_in_nodes(setup, ranks, 2, {}, &times)) CHECK(text == "");
      for (std::size_t r = 0; r < 4; ++r) {
        CAPTURE(r);
        const CollectiveResult& result = ranks[r].result;
        // No second is counted twice, but for rounding.
        CHECK(result.encode_s + result.decode_s + result.wire_s < times.took_s[r] + 1e-6);
        const double of_network = result.wire_s - result.node_wait_s;
        if (r == 1 - late) CHECK(result.node_wait_s >= times.waited_s - 1e-6);
        if (r >= 2) CHECK(of_network >= times.waited_s - 1e-6);
      }
    }
  }

  TEST_CASE("of a tensor that no rank used beside others nothing comes that leaders or owners hold back") {
    for (const Algorithm inner : {Algorithm::allgather, Algorithm::two_shot}) {
      CAPTURE(inner);
      Setup setup = setup_of("3lc", 100000, inner);
      auto ranks = make_ranks(setup, 4, 3);
      const auto unused = static_cast<std::ptrdiff_t>(setup.layout->segments[0].count);
      for (std::uint32_t step = 0; step < 6; ++step) {
        for (auto& r : ranks) {
          r.sequence = step;
          if (step == 2) std::fill_n(r.values.begin(), unused, 0.0f);
          if (step == 4) std::fill(r.values.begin(), r.values.end(), 0.0f);
        }
        for (const auto& text : run_in_nodes(setup, ranks, 2)) CHECK(text == "");
        const auto zero = [](float x) { return x == 0.0f; };
        const std::vector<float>& out = ranks[0].out;
        CHECK(std::all_of(out.begin(), out.begin() + unused, zero) == (step == 2 || step == 3));
        CHECK_FALSE(std::all_of(out.begin() + unused, out.end(), zero));
      }
    }
  }

  TEST_CASE("segments that are skipped are not written") {
    Setup setup = setup_of("fp16", 1000, Algorithm::allgather);
    setup.layout =
        Layout::make(Layout::Source::named, {{"a", 0, 400}, {"pad", 400, 100, Segment::Use::skip}, {"b", 500, 500}});
    auto ranks = make_ranks(setup, 4, 1);
    run_in_nodes(setup, ranks, 2);
    for (const auto& r : ranks) {
      for (std::size_t i = 400; i < 500; ++i) REQUIRE(r.out[i] == 12345.0f);
      CHECK(r.out[0] != 12345.0f);
      CHECK(r.out[999] != 12345.0f);
    }
  }

  TEST_CASE("any count passes through node memory of any size, with the same bits") {
    const std::uint64_t least = least_node_memory(3);
    CHECK(least < 1000);
    Turns turns(3, 5, 11);
    for (const std::uint64_t memory : {least, least + 5, 3 * least, std::uint64_t{10000}})
      for (const std::uint64_t count : {1, 15, 16, 17, 1000, 4099, 30011}) {
        CAPTURE(memory);
        CAPTURE(count);
        for (const bool in_place : {false, true}) {
          if (!turns.next()) continue;
          Setup setup = setup_of("fp16", count, Algorithm::allgather);
          setup.in_place = in_place;
          auto ranks = make_ranks(setup, 6, count);
          auto model = leaders_of(ranks, 3);
          NodeOptions options;
          options.memory = memory;
          for (const auto& text : run_in_nodes(setup, ranks, 3, options)) CHECK(text == "");
          const auto expected = model_all(setup, model);
          for (const auto& r : ranks) CHECK(difference(r.out, expected) == "");
        }
      }
  }

  TEST_CASE("node memory does not grow with the values, and hardly with the ranks") {
    for (const int ranks : {1, 2, 8, 64, 128, 1000}) {
      CHECK(node_memory(ranks) >= least_node_memory(ranks));
      CHECK(node_memory(ranks) * sizeof(float) <= 8 << 20);
    }
  }

  TEST_CASE("nodes are the ranks of a host, in order, or so many of them in a row") {
    using Nodes = std::vector<std::vector<int>>;
    const std::vector<int> hosts = {7, 7, 3, 7, 3, 7, 7};  // numbers of hosts as they come
    CHECK(nodes_of(hosts, 0) == Nodes{{0, 1, 3, 5, 6}, {2, 4}});
    CHECK(nodes_of(hosts, 2) == Nodes{{0, 1}, {2, 4}, {3, 5}, {6}});
    CHECK(nodes_of(hosts, 1).size() == 7);
    CHECK(nodes_of(hosts, 100) == nodes_of(hosts, 0));
    CHECK(nodes_of({}, 2).empty());
    CHECK(useful(nodes_of(hosts, 0)));
    CHECK(useful(nodes_of(hosts, 2)));
    CHECK_FALSE(useful(nodes_of(hosts, 1)));
    CHECK(useful(nodes_of(std::vector<int>{4, 4, 4}, 0)));  // one, for sums in its memory
    CHECK_FALSE(useful(nodes_of(std::vector<int>{4, 5, 6}, 0)));
    CHECK_FALSE(useful({}));
  }

  TEST_CASE("flags of any rank send all ranks through MPI with nothing changed") {
    for (const int odd : {0, 1, 4, 5}) {
      const Setup setup = setup_of("3lc", 100003, Algorithm::allgather);
      auto ranks = make_ranks(setup, 6, 1);
      ranks[static_cast<std::size_t>(odd)].flags = kFlagNoMemory;
      ranks[static_cast<std::size_t>(odd)].no_memory = true;
      const auto before = ranks;
      for (const auto& text : run_in_nodes(setup, ranks, 2)) CHECK(text == "");
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CHECK(ranks[r].result.flags == kFlagNoMemory);
        CHECK(difference(ranks[r].out, before[r].out) == "");
        CHECK(difference(ranks[r].residual, before[r].residual) == "");
      }
    }
  }

  TEST_CASE("a payload corrupted on its way to one leader is an error on every rank of its node") {
    const Setup setup = setup_of("3lc", 100003, Algorithm::allgather);
    auto ranks = make_ranks(setup, 6, 1);
    NodeOptions options;
    options.leaders.tamper = [](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && exchange == 1 && from == 2) bytes[bytes.size() / 2] ^= 1;
    };
    run_in_nodes(setup, ranks, 2, options);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      CHECK(ranks[r].result.error.has_value() == (r / 2 == 1));
      if (r / 2 == 1)
        CHECK(std::string(ranks[r].result.error->what()).find("rank 1 received from rank 2") != std::string::npos);
    }
    CHECK(std::string(ranks[3].result.error->what()).find("the leader of this rank's node says") == 0);
  }

  TEST_CASE("ranks of one node, or of different nodes, in different calls are told so on every rank") {
    enum class Differs { sequence, layout, count };
    for (const Differs what : {Differs::sequence, Differs::layout, Differs::count})
      for (const std::size_t odd : {1, 2, 5}) {
        CAPTURE(static_cast<int>(what));
        CAPTURE(odd);
        std::vector<Setup> setups(6, setup_of("3lc", 100003, Algorithm::allgather));
        auto ranks = make_ranks(setups[0], 6, 1);
        if (what == Differs::sequence) ranks[odd].sequence = 9;
        if (what == Differs::layout) setups[odd].layout = named_layout(100003, {50000, 18, 1000});
        if (what == Differs::count) {
          setups[odd] = setup_of("3lc", 99999, Algorithm::allgather);
          ranks[odd].values.resize(99999), ranks[odd].out.resize(99999);
        }
        const auto before = ranks;
        const auto thrown = run_in_nodes(setups, ranks, 2);
        for (std::size_t r = 0; r < ranks.size(); ++r) {
          CHECK(thrown[r].starts_with("call_differs"));
          CHECK(difference(ranks[r].residual, before[r].residual) == "");
        }
      }
  }

  TEST_CASE("of all nodes' ranks the least wait and the longest period are everybody's") {
    const Setup setup = setup_of("3lc", 100003, Algorithm::allgather);
    auto ranks = make_ranks(setup, 6, 1);
    for (std::size_t r = 0; r < 6; ++r) ranks[r].delay = {10, 500};
    ranks[1].delay.period = 12;
    ranks[5].delay.wait = 200;
    for (const auto& text : run_in_nodes(setup, ranks, 2)) CHECK(text == "");
    for (const Rank& rank : ranks) CHECK(rank.result.delays.note() == DelayNote{12, 200});
  }

  TEST_CASE("a rank whose values cannot be read sends that call of all nodes through MPI, and no other") {
    for (const std::size_t odd : {0, 1, 3}) {
      CAPTURE(odd);
      const Setup setup = setup_of("3lc", 30000, Algorithm::allgather);
      auto ranks = make_ranks(setup, 4, 1);
      const auto before = ranks;
      auto model = leaders_of(ranks, 2);
      const auto expected = model_all(setup, model);
      run_nodes(2, 2, [&](int rank, ThreadNode& node, ThreadTransport* leaders) {
        const auto r = static_cast<std::size_t>(rank);
        Workers workers(1);
        FailingMemory memory(1);
        FailingBackend backend(workers, FailingBackend::kNone, memory);
        if (r == odd) ranks[r].backend = &backend;
        CHECK(call_in_nodes(setup, ranks[r], node, leaders, 2) == "");
        CHECK(ranks[r].result.flags == kFlagNoMemory);
        CHECK(difference(ranks[r].out, before[r].out) == "");
        CHECK(difference(ranks[r].residual, before[r].residual) == "");
        CHECK(call_in_nodes(setup, ranks[r], node, leaders, 2) == "");
        CHECK(ranks[r].result.flags == 0);
        CHECK(difference(ranks[r].out, expected) == "");
        ranks[r].backend = nullptr;
      });
    }
  }

  TEST_CASE("what a rank cannot take of its node's sums is its own error, what the leader cannot hand on everybody's") {
    const std::uint64_t count = 1000;
    for (const int failing : {0, 1, 2}) {
      CAPTURE(failing);
      run_nodes(1, 3, [&](int rank, ThreadNode& node, ThreadTransport*) {
        FailingMemory memory(1);
        const std::vector<float> sums(count, 1.0f);
        std::vector<float> out(count);
        const auto failed = share_in_node(node, *Layout::unknown(count), sums.data(), out.data(), count,
                                          rank == failing ? memory : host_memory());
        CHECK(failed.has_value() == (failing == 0 || rank == failing));
        if (!failed && rank != 0) CHECK(out == sums);
      });
    }
  }
}
