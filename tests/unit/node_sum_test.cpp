// Sums of ranks that share a node's memory, in which nothing is encoded.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>

#include "collective/algorithms.hpp"
#include "core/error.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/thread_node.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("node_sum") {
  namespace {

  float value(std::uint64_t i, int rank, int call) {
    return static_cast<float>(std::sin(static_cast<double>(i) * 0.37 + rank * 1.3 + call)) * (rank == 1 ? 1e6f : 1.0f);
  }
  // In rank order, each sum rounded.
  float expected(std::uint64_t i, int ranks, int call) {
    float sum = value(i, 0, call);
    for (int r = 1; r < ranks; ++r) sum += value(i, r, call);
    return sum;
  }

  struct Call {
    std::shared_ptr<const RoutePlan> route;
    CallBuffers buffers;
    CollectiveResult run(Workers& workers) const {
      ThreadTransport* none = nullptr;
      const auto exchange = route->exchange(*none, buffers, workers, nullptr);
      exchange->start();
      CHECK_FALSE(exchange->progress());
      return exchange->finish();
    }
  };
  Call call_of(ThreadNode& node, std::shared_ptr<const Layout> layout, std::uint64_t count, const float* in, float* out,
               std::uint32_t sequence) {
    static const auto codec = make_codec("fp32");
    const PartPlan part{codec.get(), std::move(layout), count};
    Call call{sum_on_node(part, {&node, nullptr, 1}), {}};
    call.buffers.in = in;
    call.buffers.out = out;
    call.buffers.sequence = sequence;
    return call;
  }

  }  // namespace

  TEST_CASE("sums are those of rank order, of any length, again and again") {
    for (const int ranks : {1, 2, 3, 5})
      for (const std::uint64_t floats :
           {std::uint64_t{0}, static_cast<std::uint64_t>(3 * ranks * 16), std::uint64_t{4096}}) {
        CAPTURE(ranks);
        CAPTURE(floats);
        std::atomic<int> wrong{0};
        run_nodes(1, ranks,
                  [&](int rank, ThreadNode& node, ThreadTransport*) {
                    Workers workers(1);
                    std::uint32_t sequence = 0;
                    // So many in a row that ranks get ahead of one another by as much as they can.
                    for (int call = 0; call < 12; ++call)
                      for (const std::uint64_t count : {1, 15, 17, 1000, 4096, 5000}) {
                        std::vector<float> in(count), out(count, -1);
                        for (std::uint64_t i = 0; i < count; ++i) in[i] = value(i, rank, call);
                        const bool in_place = call % 2 == 1;
                        float* const to = in_place ? in.data() : out.data();
                        const auto c = call_of(node, Layout::unknown(count), count, in.data(), to, sequence++);
                        const CollectiveResult result = c.run(workers);
                        if (result.flags || result.error) ++wrong;
                        for (std::uint64_t i = 0; i < count; ++i) wrong += to[i] != expected(i, ranks, call);
                      }
                  },
                  {.memory = floats, .leaders = {}});
        CHECK(wrong == 0);
      }
  }

  TEST_CASE("what is not summed is neither added up nor overwritten") {
    const std::uint64_t count = 3000;
    const auto layout = changed(*named_layout(count, {1000, 500, 1000}), Layout::Source::named,
                                [](auto& segments) { segments[1].use = Segment::Use::skip; });
    std::atomic<int> wrong{0};
    run_nodes(1, 3,
              [&](int rank, ThreadNode& node, ThreadTransport*) {
                Workers workers(1);
                std::vector<float> in(count), out(count, 7);
                for (std::uint64_t i = 0; i < count; ++i) in[i] = value(i, rank, 0);
                call_of(node, layout, count, in.data(), out.data(), 0).run(workers);
                for (std::uint64_t i = 0; i < count; ++i)
                  wrong += out[i] != (i >= 1000 && i < 1500 ? 7.0f : expected(i, 3, 0));
              },
              {.memory = 3 * 3 * 128, .leaders = {}});
    CHECK(wrong == 0);
  }

  TEST_CASE("one rank's flag, or another call, is everybody's, and the next call is right") {
    for (const int odd : {0, 1, 2}) {
      std::atomic<int> wrong{0};
      run_nodes(1, 3, [&](int rank, ThreadNode& node, ThreadTransport*) {
        Workers workers(1);
        std::vector<float> in(100), out(100, 7);
        const auto call = [&](std::uint64_t count, std::uint32_t sequence, std::uint8_t flags) {
          for (std::uint64_t i = 0; i < count; ++i) in[i] = value(i, rank, 0);
          out.assign(100, 7);
          auto c = call_of(node, Layout::unknown(count), count, in.data(), out.data(), sequence);
          c.buffers.flags = flags;
          return c.run(workers);
        };
        const auto right = [&](std::uint32_t sequence) {
          wrong += call(100, sequence, 0).flags != 0;
          for (std::uint64_t i = 0; i < 100; ++i) wrong += out[i] != expected(i, 3, 0);
        };
        right(0);
        for (const std::uint8_t flag : {kFlagExact, kFlagNoMemory}) {
          wrong += call(100, 1, rank == odd ? flag : 0).flags != flag;
          for (const float x : out) wrong += x != 7;
          right(1);
        }
        const auto differs = [&](std::uint64_t count, std::uint32_t sequence, const char* what) {
          try {
            call(count, sequence, 0);
            ++wrong;
          } catch (const Error& e) {
            wrong += e.code() != ErrorCode::call_differs || std::string(e.what()).find(what) == std::string::npos;
          }
          for (const float x : out) wrong += x != 7;
          right(3);
        };
        differs(rank == odd ? 99 : 100, 2,
                odd ? "the element count is 99, on rank 0 100" : "the element count is 100, on rank 0 99");
        differs(100, rank == odd ? 5 : 2,
                odd ? "the call number is 5, on rank 0 2" : "the call number is 2, on rank 0 5");
      });
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("codecs whose results are no plain sums refuse it") {
    const auto why = [](const char* spec) {
      return entry_of(Algorithm::node_sum).why_unsupported(*make_codec(spec), 4);
    };
    for (const char* spec : {"fp32", "fp16", "3lc", "topk", "8bit:memory=residual", "thc"}) CHECK(why(spec) == "");
    CHECK(why("signsgd").find("votes") != std::string::npos);
    CHECK(why("dgc").find("memory=momentum") != std::string::npos);
    CHECK(why("fp16:memory=average").find("memory=average") != std::string::npos);
    CHECK(why("powersgd") != "");
  }
}
