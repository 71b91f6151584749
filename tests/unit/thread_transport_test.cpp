// The strict transport of the tests itself: that it finds what it says it finds.
#include "support/thread_transport.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("thread_transport") {
  namespace {

  std::string failure(int ranks, const std::function<void(ThreadTransport&)>& body) {
    try {
      run_ranks(ranks, body);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  }

  bool has(const std::string& text, const std::string& part) {
    if (text.find(part) != text.npos) return true;
    MESSAGE("it says: " << text);
    return false;
  }

  using Block = std::array<std::uint8_t, 64>;
  using All = std::array<std::uint8_t, 1024>;

  }  // namespace

  TEST_CASE("exchanges deliver in rank order and starting never blocks") {
    for (const int n : {1, 2, 3, 8})
      CHECK(failure(n, [&](ThreadTransport& t) {
              std::vector<std::uint8_t> mine(64, static_cast<std::uint8_t>(t.rank())),
                  all(64 * static_cast<std::size_t>(n));
              std::vector<std::uint8_t> varied(64 * static_cast<std::size_t>(t.rank()),
                                               static_cast<std::uint8_t>(t.rank())),
                  many(8192);
              std::vector<std::uint64_t> bytes, offsets;
              for (std::uint64_t r = 0; r < static_cast<std::uint64_t>(n); ++r)
                bytes.push_back(64 * r), offsets.push_back(640 * r);
              const auto first = t.start_allgather(mine.data(), all.data(), 64);
              const auto second = t.start_allgatherv(varied.data(), bytes, offsets, many.data());
              t.progress();
              t.wait(second);
              t.wait(first);
              for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r) {
                for (std::size_t i = 0; i < 64; ++i)
                  if (all[64 * r + i] != r) throw std::runtime_error("wrong bytes");
                for (std::size_t i = 0; i < 64 * r; ++i)
                  if (many[640 * r + i] != r) throw std::runtime_error("wrong bytes");
              }
            }) == "");
  }

  TEST_CASE("different exchanges are an error on a rank that starts them") {
    CHECK(has(failure(3,
                      [](ThreadTransport& t) {
                        Block mine{};
                        All all{};
                        if (t.rank() == 2) {
                          const std::vector<std::uint64_t> bytes(3, 64), offsets{0, 64, 128};
                          t.wait(t.start_allgatherv(mine.data(), bytes, offsets, all.data()));
                        } else {
                          t.wait(t.start_allgather(mine.data(), all.data(), 64));
                        }
                      }),
              "started allgather"));
    CHECK(has(failure(2,
                      [](ThreadTransport& t) {
                        std::array<std::uint8_t, 128> mine{};
                        All all{};
                        t.wait(t.start_allgather(mine.data(), all.data(), t.rank() ? 128 : 64));
                      }),
              "but rank"));
  }

  TEST_CASE("a rank that ends early or throws lets the others go") {
    CHECK(has(failure(3,
                      [](ThreadTransport& t) {
                        Block mine{};
                        All all{};
                        if (t.rank() != 1) t.wait(t.start_allgather(mine.data(), all.data(), 64));
                      }),
              "rank 1 has ended without starting it"));
    CHECK(failure(3, [](ThreadTransport& t) {
            Block mine{};
            All all{};
            if (t.rank() == 1) throw std::runtime_error("broken here");
            t.wait(t.start_allgather(mine.data(), all.data(), 64));
          }) == "broken here");
  }

  TEST_CASE("buffers that change under way and exchanges that nobody waits for are errors") {
    Block mine{};
    All all{};
    CHECK(has(failure(1,
                      [&](ThreadTransport& t) {
                        const auto ticket = t.start_allgather(mine.data(), all.data(), 64);
                        mine[3] ^= 1;
                        t.wait(ticket);
                      }),
              "send buffer was changed"));
    CHECK(has(failure(1,
                      [&](ThreadTransport& t) {
                        const auto ticket = t.start_allgather(mine.data(), all.data(), 64);
                        all[3] = 1;
                        t.wait(ticket);
                      }),
              "receive buffer was changed"));
    CHECK(has(failure(1, [&](ThreadTransport& t) { t.start_allgather(mine.data(), all.data(), 64); }),
              "without waiting"));
    CHECK(has(failure(1,
                      [&](ThreadTransport& t) {
                        const auto ticket = t.start_allgather(mine.data(), all.data(), 64);
                        t.wait(ticket);
                        t.wait(ticket);
                      }),
              "twice"));
    CHECK(has(failure(1,
                      [&](ThreadTransport& t) {
                        for (int i = 0; i <= Transport::kMostUnderWay; ++i)
                          t.start_allgather(mine.data(), all.data() + 64 * i, 64);
                      }),
              "too many"));
    CHECK(has(failure(1, [&](ThreadTransport& t) { t.start_allgather(mine.data(), all.data(), 63); }),
              "not a multiple of 64"));
    CHECK(has(failure(2,
                      [&](ThreadTransport& t) {
                        Block own{};
                        All to{};
                        const std::vector<std::uint64_t> bytes{64, 64}, offsets{0, 0};
                        t.start_allgatherv(own.data(), bytes, offsets, to.data());
                      }),
              "overlap"));
  }

  TEST_CASE("every rank sends every rank bytes of its own, and sizes must match pairwise") {
    for (const int n : {1, 2, 3, 8})
      CHECK(failure(n, [&](ThreadTransport& t) {
              const auto mine = static_cast<std::uint64_t>(t.rank());
              // Rank s sends rank r 64 ((s + 2 r) mod 3) bytes of value 16 s + r.
              std::vector<std::uint8_t> send(2048), all(2048);
              std::vector<std::uint64_t> send_bytes, send_offsets, bytes, offsets;
              for (std::uint64_t r = 0; r < static_cast<std::uint64_t>(n); ++r) {
                send_bytes.push_back(64 * ((mine + 2 * r) % 3)), send_offsets.push_back(192 * r);
                bytes.push_back(64 * ((r + 2 * mine) % 3)), offsets.push_back(192 * r + 64);
                std::memset(send.data() + 192 * r, static_cast<int>(16 * mine + r), 128);
              }
              t.wait(t.start_alltoallv(send.data(), send_bytes, send_offsets, all.data(), bytes, offsets));
              for (std::uint64_t r = 0; r < static_cast<std::uint64_t>(n); ++r)
                for (std::uint64_t i = 0; i < bytes[r]; ++i)
                  if (all[offsets[r] + i] != 16 * r + mine) throw std::runtime_error("wrong bytes");
            }) == "");
    CHECK(has(failure(2,
                      [](ThreadTransport& t) {
                        All mine{}, all{};
                        const std::vector<std::uint64_t> more{64, 128}, less{64, 64}, offsets{0, 128};
                        t.wait(t.start_alltoallv(mine.data(), more, offsets, all.data(), less, offsets));
                      }),
              "sends 128 bytes where 64 are received"));
    CHECK(has(failure(1,
                      [](ThreadTransport& t) {
                        All mine{};
                        t.wait(t.start_alltoallv(mine.data(), std::vector<std::uint64_t>{64},
                                                 std::vector<std::uint64_t>{0}, mine.data() + 32,
                                                 std::vector<std::uint64_t>{64}, std::vector<std::uint64_t>{0}));
                      }),
              "sent and what is received overlap"));
  }

  TEST_CASE("integers are summed modulo their width") {
    for (const int n : {1, 2, 3, 8})
      CHECK(failure(n, [&](ThreadTransport& t) {
              std::array<std::uint8_t, 64> bytes{}, byte_sums{};
              std::array<std::uint16_t, 32> words{}, word_sums{};
              for (std::size_t i = 0; i < 64; ++i)
                bytes[i] = static_cast<std::uint8_t>(50 * i + static_cast<std::size_t>(t.rank()));
              for (std::size_t i = 0; i < 32; ++i)
                words[i] = static_cast<std::uint16_t>(9000 * i + static_cast<std::size_t>(t.rank()));
              const auto first = t.start_sum(bytes.data(), byte_sums.data(), 64, Integer::u8);
              t.wait(t.start_sum(words.data(), word_sums.data(), 64, Integer::u16));
              t.wait(first);
              const auto ranks = static_cast<std::size_t>(n), extra = ranks * (ranks - 1) / 2;
              for (std::size_t i = 0; i < 64; ++i)
                if (byte_sums[i] != static_cast<std::uint8_t>(50 * i * ranks + extra))
                  throw std::runtime_error("wrong sum of bytes");
              for (std::size_t i = 0; i < 32; ++i)
                if (word_sums[i] != static_cast<std::uint16_t>(9000 * i * ranks + extra))
                  throw std::runtime_error("wrong sum of words");
            }) == "");
  }

  TEST_CASE("bytes can be tampered with for one receiver") {
    RunOptions options;
    options.tamper = [](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && exchange == 0 && from == 0) bytes[5] = 99;
    };
    std::array<int, 2> got{};
    run_ranks(
        2,
        [&](ThreadTransport& t) {
          Block mine{};
          All all{};
          t.wait(t.start_allgather(mine.data(), all.data(), 64));
          got[static_cast<std::size_t>(t.rank())] = all[5];
        },
        options);
    CHECK(got == std::array<int, 2>{0, 99});
  }
}
