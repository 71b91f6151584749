// What a route says of a call's chunks and sizes is what the exchange sends and takes.
#include "collective/partition.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "memory/workers.hpp"
#include "support/collective_run.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("partition") {
  namespace {

  // Writes down what one rank gives to a transport.
  class Recorder final : public Transport {
   public:
    struct Sent {
      const void* from;
      const void* to;
      std::uint64_t bytes, room;  // sent, without what it keeps; from `to` on
    };
    explicit Recorder(Transport& real) : real_(real) {}
    int rank() const override { return real_.rank(); }
    int size() const override { return real_.size(); }
    Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override {
      note(mine, all, bytes, bytes * n(), (n() - 1) * bytes);
      return real_.start_allgather(mine, all, bytes);
    }
    Ticket start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                            std::span<const std::uint64_t> offsets, void* all) override {
      note(mine, all, bytes[me()], end_of(bytes, offsets), others(bytes));
      return real_.start_allgatherv(mine, bytes, offsets, all);
    }
    Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                           std::span<const std::uint64_t> send_offsets, void* all, std::span<const std::uint64_t> bytes,
                           std::span<const std::uint64_t> offsets) override {
      note(mine, all, others(send_bytes), end_of(bytes, offsets), others(bytes));
      return real_.start_alltoallv(mine, send_bytes, send_offsets, all, bytes, offsets);
    }
    Ticket start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) override {
      note(mine, sums, bytes, bytes, bytes);
      return real_.start_sum(mine, sums, bytes, type);
    }
    void wait(Ticket ticket) override { real_.wait(ticket); }
    bool done(Ticket ticket) override { return real_.done(ticket); }
    void progress() noexcept override { real_.progress(); }

    std::vector<Sent> sent;
    std::uint64_t sent_bytes = 0, received_bytes = 0;

   private:
    std::uint64_t n() const { return static_cast<std::uint64_t>(size()); }
    std::size_t me() const { return static_cast<std::size_t>(rank()); }
    std::uint64_t others(std::span<const std::uint64_t> bytes) const {
      std::uint64_t sum = 0;
      for (std::size_t r = 0; r < bytes.size(); ++r) sum += r == me() ? 0 : bytes[r];
      return sum;
    }
    static std::uint64_t end_of(std::span<const std::uint64_t> bytes, std::span<const std::uint64_t> offsets) {
      std::uint64_t end = 0;
      for (std::size_t r = 0; r < bytes.size(); ++r) end = std::max(end, offsets[r] + bytes[r]);
      return end;
    }
    void note(const void* from, const void* to, std::uint64_t bytes, std::uint64_t room, std::uint64_t received) {
      sent.push_back({from, to, bytes, room});
      sent_bytes += bytes;
      received_bytes += received;
    }
    Transport& real_;
  };

  // One rank's call along a route, with an arena of what the route says.
  struct Passage {
    Passage(Transport& real, const Setup& setup, const RoutePlan& route, Rank& rank) : transport(real) {
      CallBuffers buffers = buffers_of(setup, rank);
      for (const auto& s : setup.layout->segments) {
        if (setup.feedback && !setup.codec->traits().whole_tensors)
          buffers.residuals.push_back(rank.residual.data() + s.offset);
        if (!rank.owner_residual.empty()) buffers.owner_residuals.push_back(rank.owner_residual.data() + s.offset);
      }
      arena.reserve(route.bytes({}).together);
      buffers.arena = &arena;
      Workers workers(1);
      rank.result = allreduce_compressed(transport, route, buffers, workers);
    }
    bool within(const void* begin, std::uint64_t bytes, std::uint64_t most) const {
      const auto* p = static_cast<const std::byte*>(begin);
      return p >= arena.data() && p + bytes <= arena.data() + most;
    }
    Recorder transport;
    Arena arena;
  };

  Setup setup_of(const char* spec, Algorithm algorithm, std::uint64_t count = 150001) {
    Setup setup{make_codec(spec), named_layout(count, {60000, 17, 30000}), count};
    setup.algorithm = algorithm;
    setup.feedback = setup.codec->feedback().kept();
    return setup;
  }

  }  // namespace

  TEST_CASE("slices tile a call; groups end where segments do, and gaps are none") {
    const auto layout = changed(*named_layout(100, {30, 5, 40}), Layout::Source::named,
                                [](auto& segments) { segments[1].use = Segment::Use::skip; });  // 30 5 40 25
    const Slice slice(*layout, 20, 80);
    CHECK(slice.begin == 20);
    CHECK(slice.partition.count() == 60);
    REQUIRE(slice.partition.groups().size() == 3);
    const std::uint64_t expected[3][2] = {{0, 10}, {15, 40}, {55, 5}};
    for (std::size_t g = 0; g < 3; ++g) {
      CHECK(slice.partition.groups()[g].offset == expected[g][0]);
      CHECK(slice.partition.groups()[g].count == expected[g][1]);
    }
    CHECK(slice.segments == std::vector<std::uint32_t>{0, 2, 3});
    CHECK(Slice(*layout, 31, 34).partition.groups().empty());
    CHECK(Slice(*layout, 31, 34).partition.count() == 3);

    // What a body has at most is known without cutting it.
    for (const std::uint64_t begin : {0, 20, 29, 31})
      for (const std::uint64_t end : {31, 36, 80, 100})
        for (const char* spec : {"fp32", "bf16", "fp16", "3lc", "topk", "8bit"})
          CHECK(body_bound(*make_codec(spec), *layout, begin, end) ==
                Slice(*layout, begin, end).partition.body_bound(*make_codec(spec)));
    const auto large = named_layout(150001, {60000, 17, 10240, 30000});
    for (const char* spec : {"fp32", "fp16", "3lc", "topk"})
      CHECK(body_bound(*make_codec(spec), *large, 777, 140000) ==
            Slice(*large, 777, 140000).partition.body_bound(*make_codec(spec)));

    const auto route = route_of(setup_of("fp16", Algorithm::allgather), 3);
    const auto& chunks = dynamic_cast<const ChunkedRoute&>(*route).chunks();
    std::uint64_t at = 0;
    for (const Slice& chunk : chunks) {
      CHECK(chunk.begin == at);
      CHECK(chunk.partition.count() <= 40960);
      at += chunk.partition.count();
    }
    CHECK(at == 150001);
    CHECK(chunks.size() == 4);
  }

  TEST_CASE("a call takes the bytes of its arena that the route says, and what it sends and receives lies in them") {
    for (const char* spec : {"fp32", "fp16", "3lc", "topk", "thc", "thc:memory=none", "powersgd"})
      for (const auto& entry : carriers())
        for (const int ranks : {1, 2, 3}) {
          const Setup setup = setup_of(spec, entry.algorithm);
          if (!entry.why_unsupported(*setup.codec, ranks).empty()) continue;
          CAPTURE(text_of(setup));
          const auto route = route_of(setup, ranks);
          auto members = make_ranks(setup, ranks, 5);
          run_ranks(ranks, [&](ThreadTransport& real) {
            Rank& rank = members[static_cast<std::size_t>(real.rank())];
            Passage passage(real, setup, *route, rank);
            const std::uint64_t promised = route->bytes({}).together;
            CHECK(static_cast<std::uint64_t>(passage.arena.take(0) - passage.arena.data()) == promised);
            std::size_t bodies = 0;
            for (const auto& sent : passage.transport.sent) {
              if (!passage.within(sent.from, 1, promised)) continue;  // headers
              ++bodies;
              CHECK(passage.within(sent.to, sent.room, promised));
            }
            CHECK(bodies > 0);
            CHECK(rank.result.sent_bytes == passage.transport.sent_bytes);
            CHECK(rank.result.received_bytes == passage.transport.received_bytes);
          });
        }
  }

  // Bodies of such codecs are their elements' bytes behind one another, then zeros up to a multiple of 64
  // (WIRE_FORMAT.md, section 3).
  TEST_CASE("of codecs of a fixed size, allgather sends for each chunk a header and the bytes that its elements make") {
    for (const auto& [spec, element] : {std::pair{"fp32", 4}, std::pair{"bf16", 2}})
      for (const std::uint64_t count :
           {std::uint64_t{1}, std::uint64_t{40960}, std::uint64_t{40961}, std::uint64_t{150001}}) {
        Setup setup = setup_of(spec, Algorithm::allgather, count);
        setup.layout = Layout::unknown(count);
        CAPTURE(text_of(setup));
        std::vector<std::uint64_t> expected;
        for (std::uint64_t at = 0; at < count; at += setup.chunk) {
          const std::uint64_t bytes = std::min(setup.chunk, count - at) * static_cast<std::uint64_t>(element);
          expected.push_back((bytes + 63) / 64 * 64);
        }
        const auto route = route_of(setup, 2);
        std::vector<std::uint64_t> planned;
        for (const Slice& slice : dynamic_cast<const ChunkedRoute&>(*route).chunks())
          planned.push_back(slice.partition.body_bound(*setup.codec));
        CHECK(planned == expected);
        auto members = make_ranks(setup, 2, 5);
        run_ranks(2, [&](ThreadTransport& real) {
          Passage passage(real, setup, *route, members[static_cast<std::size_t>(real.rank())]);
          std::vector<std::uint64_t> bodies;
          std::size_t headers = 0;
          for (const auto& sent : passage.transport.sent) {
            if (passage.within(sent.from, 1, route->bytes({}).together)) {
              bodies.push_back(sent.bytes);
              continue;
            }
            ++headers;
            CHECK(sent.bytes == 64);
          }
          CHECK(bodies == expected);
          CHECK(headers == expected.size());
        });
      }
  }
}
