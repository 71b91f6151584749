// Exchanges by store and forward: what arrives, in how many messages, and two shots by them on many ranks.
#include "collective/relay.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/effort.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("relay") {
  namespace {

  int steps_of(int ranks, int base) {
    int steps = 0;
    for (int reach = 1; reach < ranks; reach *= base) ++steps;
    return steps;
  }

  // The messages of one rank's alltoall, counted distance by distance: ranks that are a digit and zeros away.
  int messages_of(int ranks, int base) {
    int messages = 0;
    for (int d = 1; d < ranks; ++d) {
      int rest = d;
      while (rest % base == 0) rest /= base;
      messages += rest < base;
    }
    return messages;
  }

  // Some are empty.
  std::uint64_t bytes_of(int from, int to) { return 64 * static_cast<std::uint64_t>((7 * from + 3 * to) % 5); }
  std::uint8_t content(int from, int to, std::uint64_t i) {
    return static_cast<std::uint8_t>(from * 31 + to * 7 + static_cast<int>(i % 61));
  }

  void run_to_end(Transport& transport, Relay& relay) {
    while (relay.under_way()) {
      transport.wait(relay.ticket());
      relay.advance();
    }
  }

  using Bytes64 = std::vector<std::uint64_t>;

  }  // namespace

  TEST_CASE("every block of an alltoall arrives where it is due, whole, in the steps and messages of its base") {
    for (const int n : {2, 3, 4, 5, 7, 8, 12, 13})
      for (const int base : {2, 3, 4, 8, 20}) {
        CAPTURE(n);
        CAPTURE(base);
        run_ranks(n, [&](ThreadTransport& transport) {
          const int me = transport.rank();
          const auto ranks = static_cast<std::size_t>(n);
          constexpr std::uint64_t kMost = 256;
          std::vector<Header> mine(ranks), theirs(ranks);
          std::vector<std::uint8_t> from(ranks * kMost), to(ranks * kMost), packed(ScatterRelay::room(ranks, kMost)),
              arrived(packed);
          Bytes64 offsets(ranks);
          for (int q = 0; q < n; ++q) {
            const auto at = static_cast<std::size_t>(q);
            offsets[at] = kMost * static_cast<std::uint64_t>(n - 1 - q);
            mine[at].body_bytes = bytes_of(me, q);
            mine[at].call = static_cast<std::uint32_t>(100 * me + q);
            for (std::uint64_t i = 0; i < bytes_of(me, q); ++i) from[offsets[at] + i] = content(me, q, i);
          }
          HeaderRelay headers(transport, base);
          ScatterRelay bodies(transport, base, true);
          for (int turn = 0; turn < 2; ++turn) {  // a second time: nothing of the first one stays
            const int messages = transport.messages(), exchanges = transport.exchanges();
            headers.begin(mine, theirs, kMost);
            run_to_end(transport, headers);
            CHECK(transport.exchanges() - exchanges == steps_of(n, base));
            CHECK(transport.messages() - messages == messages_of(n, base));
            std::fill(to.begin(), to.end(), 0);
            bodies.begin({from.data(), offsets, to.data(), kMost, packed.data(), arrived.data()}, headers.bodies);
            run_to_end(transport, bodies);
            for (int r = 0; r < n; ++r) {
              const auto at = static_cast<std::size_t>(r);
              CHECK(theirs[at].call == static_cast<std::uint32_t>(100 * r + me));
              CHECK(theirs[at].body_bytes == bytes_of(r, me));
              bool same = true;
              for (std::uint64_t i = 0; i < bytes_of(r, me); ++i)
                same = same && to[at * kMost + i] == content(r, me, i);
              CHECK(same);
            }
          }
        });
      }
  }

  TEST_CASE("an allgather brings every block, in ceil(log2 n) messages and no byte twice") {
    for (const int n : {1, 2, 3, 4, 5, 7, 8, 12, 13}) {
      CAPTURE(n);
      run_ranks(n, [&](ThreadTransport& transport) {
        const int me = transport.rank();
        Bytes64 bytes;
        std::uint64_t all = 0, received = 0;
        for (int r = 0; r < n; ++r) all += bytes.emplace_back(64 + bytes_of(r, 1));
        std::vector<std::uint8_t> to(all);
        for (std::uint64_t i = 0; i < bytes[static_cast<std::size_t>(me)]; ++i) to[i] = content(me, 0, i);
        GatherRelay relay(transport);
        relay.begin(to.data(), bytes);
        while (relay.under_way()) {
          received += relay.received_bytes();
          transport.wait(relay.ticket());
          relay.advance();
        }
        CHECK(received == all - bytes[static_cast<std::size_t>(me)]);
        CHECK(transport.messages() == steps_of(n, 2));
        for (int r = 0; r < n; ++r) {
          const auto at = static_cast<std::size_t>(r);
          bool same = true;
          for (std::uint64_t i = 0; i < bytes[at]; ++i) same = same && to[relay.offset_of(at) + i] == content(r, 0, i);
          CHECK(same);
        }
      });
    }
  }

  TEST_CASE("every rank sends and receives something in every step, also where all blocks are empty") {
    for (const int n : {2, 3, 5, 8})
      for (const int base : {2, 3, 8})
        run_ranks(n, [&](ThreadTransport& transport) {
          const auto ranks = static_cast<std::size_t>(n);
          std::vector<Header> mine(ranks), theirs(ranks);
          HeaderRelay headers(transport, base);
          headers.begin(mine, theirs, 0);
          run_to_end(transport, headers);
          std::uint8_t packed[64], arrived[64];
          const Bytes64 offsets(ranks), none(ranks);
          ScatterRelay bodies(transport, base, true);
          GatherRelay gathered(transport);
          const int messages = transport.messages(), exchanges = transport.exchanges();
          bodies.begin({packed, offsets, packed, 0, packed, arrived}, headers.bodies);
          while (bodies.under_way()) {
            CHECK(bodies.sent_bytes() == 64);
            CHECK(bodies.received_bytes() == 64);
            transport.wait(bodies.ticket());
            bodies.advance();
          }
          gathered.begin(packed, none);
          run_to_end(transport, gathered);
          CHECK(transport.messages() - messages == transport.exchanges() - exchanges);
          CHECK(transport.exchanges() - exchanges == steps_of(n, base) + steps_of(n, 2));
        });
  }

  // A header comes from its encoder and is read by who it is for; on its way it only says how long a body is.
  TEST_CASE("a body that is longer than any can be is passed on as far as there is room") {
    run_ranks(3, [](ThreadTransport& transport) {
      std::vector<Header> mine(3), theirs(3);
      for (auto& h : mine) h.body_bytes = ~std::uint64_t{0};
      HeaderRelay headers(transport, 2);
      headers.begin(mine, theirs, 130);
      run_to_end(transport, headers);
      for (const auto b : headers.bodies) CHECK(b == 128);
    });
  }

  TEST_CASE("what a step sends adds up to all blocks once for every digit that is not 0") {
    for (const std::uint64_t n : {2, 3, 5, 8, 12, 64, 100, 1024})
      for (const std::uint64_t base : {2, 3, 8, 32}) {
        std::uint64_t blocks = 0, digits = 0, messages = 0;
        for (std::uint64_t weight = 1; weight < n; weight *= base) {
          blocks += relay_step(n, base, weight).blocks;
          messages += relay_step(n, base, weight).messages;
        }
        for (std::uint64_t d = 1; d < n; ++d)
          for (std::uint64_t rest = d; rest; rest /= base) digits += rest % base != 0;
        CHECK(blocks == digits);
        CHECK(messages == static_cast<std::uint64_t>(messages_of(static_cast<int>(n), static_cast<int>(base))));
      }
    CHECK(relay_radices(7).empty());
    CHECK(relay_radices(64) == std::vector<int>{8, 4, 3, 2});  // of 2, 3, 4 and 6 steps
    CHECK(relay_radices(1024) == std::vector<int>{32, 11, 6, 4, 3, 2});
  }

  // Every shard is a tensor of 70 elements, so none is empty, and all four exchanges of the chunk are of every rank.
  TEST_CASE("64, 100, 128 and 256 ranks: the bits of direct messages, ceil(log2 n) of them in place of n - 1") {
    for (const int n : {64, 100, 128, 256}) {
      if (n > effort(256, 256, 128, 64)) continue;
      CAPTURE(n);
      const std::uint64_t count = 70 * static_cast<std::uint64_t>(n);
      Setup setup{make_codec("3lc"), named_layout(count, {70}), count};
      setup.algorithm = Algorithm::two_shot;
      auto direct = make_ranks(setup, n, 1);
      RunOptions options;
      options.latency = std::chrono::microseconds(20);
      const auto start = direct;
      run_all(setup, direct, options);
      for (const int base : {2, 16}) {
        CAPTURE(base);
        auto relayed = start;
        setup.radix = base;
        run_all(setup, relayed, options);
        setup.radix = 1;
        const int doublings = steps_of(n, 2);
        bool same = true;
        for (std::size_t r = 0; r < relayed.size(); ++r) {
          CHECK(direct[r].messages == 4 * (n - 1));
          CHECK(relayed[r].messages == 2 * messages_of(n, base) + 2 * doublings);
          if (base == 2) CHECK(relayed[r].messages == 4 * doublings);
          same = same && !relayed[r].result.error && !relayed[r].result.flags &&
                 difference(relayed[r].out, direct[0].out).empty() &&
                 difference(relayed[r].residual, direct[r].residual).empty() &&
                 difference(relayed[r].owner_residual, direct[r].owner_residual).empty();
        }
        CHECK(same);
      }
    }
  }
}
