// Top-k with a threshold that is kept from call to call (reuse): which calls use it, when it is found anew, where its
// state is and what a call that fails leaves of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "codec/coding/select.hpp"
#include "collective/algorithms.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("topk") {
  namespace {

  std::uint64_t reaching(const std::vector<float>& a, float threshold) {
    return static_cast<std::uint64_t>(
        std::count_if(a.begin(), a.end(), [&](float x) { return std::fabs(x) >= threshold; }));
  }

  bool same(const Selection& x, const Selection& y) {
    return x.up == y.up && x.down == y.down && x.up_ties == y.up_ties && x.down_ties == y.down_ties;
  }

  // Ranks that reduce two tensors, the first one in several chunks, with memories of exactly the codec's size and a
  // guard behind.
  struct World {
    static constexpr float kGuard = 777.0f;
    Setup setup;
    std::vector<Rank> ranks;
    std::vector<std::vector<std::vector<float>>> memories, owned;  // per rank and tensor

    World(const char* spec, Algorithm algorithm, int n, int threads)
        : setup{make_codec(spec), named_layout(120017, {115017, 5000}), 120017} {
      setup.algorithm = algorithm;
      setup.threads = threads;
      ranks = make_ranks(setup, n, 1);
      for (int r = 0; r < n; ++r) {
        auto& m = memories.emplace_back();
        auto& o = owned.emplace_back();
        for (const auto& s : setup.layout->segments) {
          m.emplace_back(setup.codec->feedback_elements(s.count)).push_back(kGuard);
          o.emplace_back(s.count + setup.codec->state_elements(s.count)).push_back(kGuard);
        }
      }
    }
    void run(std::uint32_t step) {
      run_ranks(static_cast<int>(ranks.size()), [&](ThreadTransport& transport) {
        const auto r = static_cast<std::size_t>(transport.rank());
        Rank& rank = ranks[r];
        rank.sequence = step;
        rank.values = make_data(Data::normal, 100 * step + r, setup.count);
        const auto route = route_of(setup, transport.size());
        CallBuffers c = buffers_of(setup, rank);
        for (auto& m : memories[r]) c.residuals.push_back(m.data());
        if (setup.algorithm == Algorithm::two_shot)
          for (auto& o : owned[r]) c.owner_residuals.push_back(o.data());
        Arena arena;
        arena.reserve(route->bytes({}).together);
        c.arena = &arena;
        Workers workers(setup.threads);
        rank.result = allreduce_compressed(transport, *route, c, workers);
      });
    }
  };

  }  // namespace

  TEST_CASE("a threshold serves `reuse` calls, the first of them exactly") {
    for (const char* spec : {"topk:reuse=4", "topk:reuse=4,ratio=0.1", "topk:reuse=4,ratio=0.0005"})
      for (const std::size_t count :
           {std::size_t{40000}, std::size_t{200003}}) {  // counted, and sampled where k is large enough
        CAPTURE(spec);
        CAPTURE(count);
        const auto codec = make_codec(spec);
        REQUIRE(codec->keeps_state());
        float state[2] = {0.0f, 0.0f}, threshold = 0.0f;
        for (std::uint32_t step = 0; step < 9; ++step) {
          const auto a = make_data(Data::normal, 7 + step, count);
          float next[2] = {-1.0f, -1.0f};
          const float before[2] = {state[0], state[1]};
          const Selection s = codec->select_again(a.data(), nullptr, count, {}, state, next),
                          exact = codec->select(a.data(), nullptr, count, {});
          CHECK((state[0] == before[0] && state[1] == before[1]));
          CHECK(same(codec->select_again(a.data(), nullptr, count, {}, state, state), s));  // in place
          CHECK((state[0] == next[0] && state[1] == next[1]));
          if (step % 4 == 0) {
            CHECK(same(s, exact));
            threshold = exact.up;
          } else {
            CHECK(select::count_above(a.data(), nullptr, count, s.up, select::Side::magnitude) ==
                  reaching(a, threshold));
            CHECK(s.down == s.up);
            CHECK(s.up_ties == 0);
          }
          CHECK(next[0] == threshold);
          CHECK(next[1] == 3.0f - static_cast<float>(step % 4));
        }
      }
  }

  TEST_CASE("it is found anew at once where it would send less than half or more than twice") {
    for (const std::size_t count : {std::size_t{40000}, std::size_t{200003}}) {
      const auto codec = make_codec("topk:reuse=100,ratio=0.02");
      const auto a = make_data(Data::normal, 3, count);
      const std::uint64_t k = count / 50;
      for (const float factor : {0.0f, 0.3f, 0.7f, 0.95f, 1.0f, 1.05f, 1.5f, 10.0f}) {
        CAPTURE(count);
        CAPTURE(factor);
        float state[2] = {};
        const float threshold = codec->select_again(a.data(), nullptr, count, {}, state, state).up;
        auto b = a;
        for (float& x : b) x *= factor;
        const Selection s = codec->select_again(b.data(), nullptr, count, {}, state, state);
        const std::uint64_t would = reaching(b, threshold);
        const bool anew = 2 * would < k || would > 2 * k;
        CHECK(anew == (factor < 0.8f || factor > 1.3f));
        CHECK(same(s, codec->select(b.data(), nullptr, count, {})) == anew);
        CHECK(state[1] == (anew ? 99.0f : 98.0f));
      }
    }
  }

  TEST_CASE("one call, no memory and illegal values") {
    CHECK_FALSE(make_codec("topk")->keeps_state());
    CHECK_FALSE(make_codec("topk:reuse=1,memory=none")->keeps_state());
    CHECK(make_codec("topk")->feedback_elements(100000) == 100000);
    CHECK(refusal("topk:reuse=2,memory=none").find("legal is 1 with memory=none") != std::string::npos);
    for (const char* spec : {"topk:reuse=0", "topk:reuse=1.5", "topk:reuse=65537", "topk:reuse=nan"})
      CHECK(refusal(spec).find("legal is a whole number, 1 to 65536") != std::string::npos);
  }

  TEST_CASE("every group of a tensor has a state of its own, whatever its first part") {
    const auto codec = make_codec("topk:reuse=2,memory=momentum");
    for (const std::uint64_t count : {1ull, 2ull, 10239ull, 10240ull, 10241ull, 50000ull})
      for (const std::uint64_t part : {1ull, 100ull, 10239ull, 10240ull}) {
        CHECK(codec->feedback_elements(count) == 2 * count + codec->state_elements(count));
        std::vector<float> memory(codec->feedback_elements(count));
        const float* last = memory.data() + 2 * count - 1;
        for (std::uint64_t first = 0; first < count; first += first ? kPieceElements : part) {
          const FeedbackView f = feedback_of(*codec, memory.data(), 2, count, first);
          CHECK(f.state_in > last);
          last = f.state_in + Codec::kStateFloats - 1;
          CHECK(last < memory.data() + memory.size());
        }
      }
    CHECK(feedback_of(*codec, nullptr, 2, 5, 0).state_in == nullptr);
  }

  TEST_CASE(
      "through collectives: sums and memories as by the codec's own functions, whatever the threads; a call that goes through MPI changes nothing") {
    const char* const spec = "topk:reuse=3,ratio=0.02";
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2}) {
      World world(spec, Algorithm::allgather, 2, threads);
      const Codec& codec = *world.setup.codec;
      std::vector<std::vector<float>> residual(2, std::vector<float>(world.setup.count));
      std::vector<std::map<std::uint64_t, std::array<float, 2>>> states(2);
      bool reused = false;
      for (std::uint32_t step = 0; step < 12; ++step) {
        CAPTURE(step);
        if (step == 2 || step == 5) {
          const auto memories = world.memories;
          world.ranks[1].flags = kFlagExact;
          world.run(step);
          world.ranks[1].flags = 0;
          CHECK(world.ranks[0].result.flags == kFlagExact);
          CHECK(world.memories == memories);
          continue;
        }
        world.run(step);
        std::vector<float> sum(world.setup.count);
        for (std::size_t r = 0; r < 2; ++r) {
          const auto g = make_data(Data::normal, 100 * step + r, world.setup.count);
          for (const auto& segment : world.setup.layout->segments)
            for (std::uint64_t at = segment.offset; at < segment.offset + segment.count;) {
              const std::uint64_t end = std::min(segment.offset + segment.count,
                                                 (at / world.setup.chunk + 1) * world.setup.chunk),
                                  n = end - at;
              auto& state = states[r][at];
              reused = reused || state[1] == 1.0f;  // after a second call with one threshold
              std::vector<float> a(n);
              for (std::uint64_t i = 0; i < n; ++i) a[i] = g[at + i] + residual[r][at + i];
              const Selection s = codec.select_again(a.data(), nullptr, n, {}, state.data(), state.data());
              for (std::uint64_t i = 0; i < n; ++i) {
                const float size = std::fabs(a[i]);
                const bool goes = size > s.up || (size == s.up && i < s.up_ties);
                if (goes) sum[at + i] += a[i];
                residual[r][at + i] = goes ? 0.0f : a[i];
              }
              at = end;
            }
          for (std::size_t s = 0; s < 2; ++s) {
            const auto& segment = world.setup.layout->segments[s];
            const auto begin = residual[r].begin() + static_cast<std::ptrdiff_t>(segment.offset);
            CHECK(std::equal(begin, begin + static_cast<std::ptrdiff_t>(segment.count), world.memories[r][s].begin()));
            CHECK(world.memories[r][s].back() == World::kGuard);
          }
        }
        for (const Rank& rank : world.ranks) CHECK(difference(rank.out, sum) == "");
      }
      CHECK(reused);
      if (threads == 1) {
        first = world.memories[1];
      } else {
        CHECK(world.memories[1] == first);
      }
    }
  }

  TEST_CASE("in two shots owners keep a state with their residual") {
    World world("topk:reuse=3,ratio=0.1", Algorithm::two_shot, 3, 1);
    for (std::uint32_t step = 0; step < 5; ++step) {
      world.run(step);
      for (std::size_t r = 0; r < 3; ++r) {
        CHECK_FALSE(world.ranks[r].result.error.has_value());
        CHECK(difference(world.ranks[r].out, world.ranks[0].out) == "");
        for (std::size_t s = 0; s < 2; ++s) {
          CHECK(world.memories[r][s].back() == World::kGuard);
          CHECK(world.owned[r][s].back() == World::kGuard);
        }
      }
    }
    // Of the first tensor every rank owns something of the first chunk: the state of what it owns is not zero.
    for (const auto& o : world.owned)
      CHECK(std::any_of(o[0].begin() + 115017, o[0].end() - 1, [](float x) { return x != 0.0f; }));
  }
}
