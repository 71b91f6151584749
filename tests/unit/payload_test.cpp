// Bodies that do not follow the format: each kind is refused with a text, and nothing outside the output is written.
#include "codec/payload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/random.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("payload") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

  ChunkPartition three_groups() {
    ChunkPartition partition;
    partition.add_group(12000);
    partition.add_group(7);
    partition.add_group(10240);
    return partition;
  }

  Bytes body_of(const Codec& codec, const ChunkPartition& partition, std::uint64_t seed = 1) {
    Workers workers(1);
    const auto values = make_sparse(0.05, seed, partition.count());
    Bytes body(partition.body_bound(codec));
    body.resize(encode_body(codec, partition, values.data(), {}, {}, body.data(), nullptr, workers));
    return body;
  }

  std::string open(const Codec& codec, const ChunkPartition& partition, const Bytes& body) {
    // A copy of its own size, so that the address sanitizer sees a read behind it.
    const std::vector<std::uint8_t> exact(body);
    BodyView view;
    return view.open(codec, partition, exact);
  }

  // Bytes up to the end of the last piece.
  std::size_t unpadded(const Codec& codec, const ChunkPartition& partition, const Bytes& body) {
    BodyView view;
    REQUIRE(view.open(codec, partition, body) == "");
    const auto last = view.piece(partition.pieces().size() - 1);
    return static_cast<std::size_t>(last.data() + last.size() - body.data());
  }

  }  // namespace

  TEST_CASE("shape cuts groups into pieces") {
    ChunkPartition partition = three_groups();
    partition.add_group(0);
    CHECK(partition.count() == 22247);
    REQUIRE(partition.groups().size() == 3);
    REQUIRE(partition.pieces().size() == 4);
    const std::uint64_t expected[][3] = {{0, 10240, 0}, {10240, 1760, 0}, {12000, 7, 1}, {12007, 10240, 2}};
    for (std::size_t p = 0; p < 4; ++p) {
      CHECK(partition.pieces()[p].offset == expected[p][0]);
      CHECK(partition.pieces()[p].count == expected[p][1]);
      CHECK(partition.pieces()[p].group == expected[p][2]);
    }
    CHECK(partition.first_piece(2) == 3);
    const auto lc = make_codec("3lc"), plain = make_codec("3lc:zero_run=0"), none = make_codec("fp32");
    CHECK(partition.prefix_bytes(*lc) == 64);
    CHECK(partition.prefix_bytes(*none) == 0);
    CHECK(partition.body_bound(*none) == (4 * 22247 + 63) / 64 * 64);
    CHECK(partition.prefix_bytes(*plain) == 0);
    CHECK(partition.body_bound(*plain) == (4 * 4 + 2048 + 352 + 2 + 2048 + 63) / 64 * 64);
    partition.clear();
    CHECK(partition.count() == 0);
    CHECK(partition.body_bound(*lc) == 0);
  }

  TEST_CASE("a body of another size is refused") {
    for (const auto& codec : all_codecs()) {
      CAPTURE(codec->spec());
      const ChunkPartition partition = three_groups();
      const Bytes good = body_of(*codec, partition);
      CHECK(open(*codec, partition, good) == "");
      for (const std::size_t size :
           {std::size_t{0}, std::size_t{1}, std::size_t{63}, good.size() - 64, good.size() - 1, good.size() + 64}) {
        Bytes bad = good;
        bad.resize(size);
        CHECK(has(open(*codec, partition, bad), "bytes"));
      }
    }
  }

  TEST_CASE("padding that is not zero is refused before and behind the pieces") {
    for (const auto& codec : all_codecs()) {
      CAPTURE(codec->spec());
      ChunkPartition partition;  // 12007 elements leave padding for every codec
      partition.add_group(12000);
      partition.add_group(7);
      // Where the size depends on the values, some leave none.
      Bytes bad;
      for (std::uint64_t seed = 1; bad.empty() || unpadded(*codec, partition, bad) == bad.size(); ++seed)
        bad = body_of(*codec, partition, seed);
      bad.back() = 1;
      CHECK(has(open(*codec, partition, bad), "padding"));
      const std::size_t prefix = partition.prefix_bytes(*codec);
      if (prefix == 0) continue;
      bad.back() = 0;
      CHECK(open(*codec, partition, bad) == "");
      const std::size_t table = codec->traits().fixed_size ? 0 : 6;
      for (std::size_t at = table; at < prefix; ++at) {
        bad[at] = 0x80;
        CHECK(has(open(*codec, partition, bad), "padding"));
        bad[at] = 0;
      }
    }
  }

  TEST_CASE("a length beyond the bound is refused and one that does not fit the body too") {
    const ChunkPartition partition = three_groups();
    const auto codec = make_codec("3lc");
    for (const std::size_t piece : {0, 1, 2, 3}) {
      Bytes bad = body_of(*codec, partition);
      const std::uint64_t bound = codec->piece_bound(partition.pieces()[piece].count);
      for (const std::uint64_t length : {bound + 1, std::uint64_t{65535}}) {
        bad[2 * piece] = static_cast<std::uint8_t>(length & 0xff);
        bad[1 + 2 * piece] = static_cast<std::uint8_t>(length >> 8);
        CHECK(
            has(open(*codec, partition, bad), "piece " + std::to_string(piece) + " claims " + std::to_string(length)));
      }
    }
    Bytes bad = body_of(*codec, partition);
    bad[0] = 0;  // piece 0: shorter by up to 255 bytes, so that the sum no longer fills the body
    bad[1] = 0;
    CHECK(open(*codec, partition, bad) != "");
  }

  TEST_CASE("malformed pieces are found and nothing outside the output is written") {
    ChunkPartition partition;
    partition.add_group(12000);
    partition.add_group(33);
    int found = 0;
    for (const auto& codec : all_codecs()) {
      const auto& traits = codec->traits();
      if (std::string_view(traits.name) != "3lc" && (!traits.selects || traits.fixed_size))
        continue;  // every byte string is a legal piece of the others
      CAPTURE(codec->spec());
      const Random random(11, 0);
      for (std::uint64_t round = 0; round < 300; ++round) {
        CAPTURE(round);
        std::vector<Bytes> bodies{body_of(*codec, partition, 1), body_of(*codec, partition, 2),
                                  body_of(*codec, partition, 3)};
        Bytes& bad = bodies[1];
        std::vector<BodyView> views(3);
        for (std::size_t r = 0; r < 3; ++r) REQUIRE(views[r].open(*codec, partition, bodies[r]) == "");
        // Garbage of three kinds in the pieces: any bytes, only runs, one byte changed.
        const std::size_t first = partition.prefix_bytes(*codec);
        std::size_t end = first;
        for (std::size_t p = 0; p < partition.pieces().size(); ++p) end += views[1].piece(p).size();
        for (std::size_t i = first; i < end; ++i) {
          const auto r = static_cast<std::uint8_t>(random.bits(round * 100000 + i));
          if (round % 3 == 0) bad[i] = r;
          if (round % 3 == 1) bad[i] = static_cast<std::uint8_t>(243 + r % 13);
        }
        if (round % 3 == 2)
          bad[first + random.bits(round) % (end - first)] ^=
              static_cast<std::uint8_t>(1 + random.bits(round + 7) % 255);
        REQUIRE(views[1].open(*codec, partition, bad) == "");
        Guarded<float> out(partition.count());
        Workers workers(1);
        const int who = decode_add(*codec, partition, views, {}, out.data(), false, workers);
        CHECK((who == 1 || (who == -1 && round % 3 == 2)));
        CHECK(out.intact());
        found += who == 1;
      }
    }
    CHECK((one_is_asked_for() || found > (kSanitized ? 600 : 8 * 200)));
  }

  TEST_CASE("a scale that is negative, -0 or no number is refused") {
    ChunkPartition partition;
    partition.add_group(300);
    Workers workers(1);
    for (const char* spec : {"3lc", "3lc:zero_run=0", "8bit", "1bit", "efsignsgd", "terngrad", "qsgd", "thc"})
      for (const float scale : {-0.0f, -1.0f, -0x1p-149f, std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()}) {
        CAPTURE(spec);
        CAPTURE(scale);
        const auto codec = make_codec(spec);
        std::vector<Bytes> bodies{body_of(*codec, partition, 1)};
        std::vector<BodyView> views(1);
        std::vector<float> out(partition.count());
        REQUIRE(views[0].open(*codec, partition, bodies[0]) == "");
        CHECK(decode_add(*codec, partition, views, {}, out.data(), false, workers) == -1);
        std::memcpy(bodies[0].data() + partition.prefix_bytes(*codec), &scale, sizeof scale);
        REQUIRE(views[0].open(*codec, partition, bodies[0]) == "");
        CHECK(decode_add(*codec, partition, views, {}, out.data(), false, workers) == 0);
      }
  }

  TEST_CASE("a sum that is written past the caches has the same bits, wherever it lies") {
    for (const auto& codec : all_codecs()) {
      CAPTURE(codec->spec());
      ChunkPartition partition;  // enough for more than one thread
      for (const std::uint64_t count : {90000, 7, 30720}) partition.add_group(count);
      const std::vector<Bytes> bodies{body_of(*codec, partition, 1), body_of(*codec, partition, 2)};
      std::vector<BodyView> views(2);
      for (std::size_t r = 0; r < 2; ++r) REQUIRE(views[r].open(*codec, partition, bodies[r]) == "");
      Workers one(1), three(3);
      std::vector<float> expected(partition.count());
      REQUIRE(decode_add(*codec, partition, views, {}, expected.data(), false, one) == -1);
      for (const std::size_t place : {0, 1, 2, 3}) {
        Guarded<float> out(partition.count() + place);
        std::fill_n(out.data(), partition.count() + place, 7.0f);
        CHECK(decode_add(*codec, partition, views, {}, out.data() + place, false, place % 2 ? one : three, {}, 0,
                         true) == -1);
        CHECK(std::memcmp(out.data() + place, expected.data(), expected.size() * sizeof(float)) == 0);
        for (std::size_t i = 0; i < place; ++i) CHECK(out.data()[i] == 7.0f);
        CHECK(out.intact());
      }
      // What is added to is read, so it is never written like that.
      std::vector<float> twice = expected;
      CHECK(decode_add(*codec, partition, views, {}, twice.data(), true, one, {}, 0, true) == -1);
      std::vector<float> added = expected;
      CHECK(decode_add(*codec, partition, views, {}, added.data(), true, one) == -1);
      CHECK(std::memcmp(twice.data(), added.data(), added.size() * sizeof(float)) == 0);
    }
  }

  TEST_CASE("of several malformed bodies the first is named whatever the threads") {
    const auto codec = make_codec("3lc:zero_run=0");
    ChunkPartition partition;
    partition.add_group(102400);
    std::vector<Bytes> bodies(3, body_of(*codec, partition));
    bodies[2][partition.prefix_bytes(*codec)] = 255;  // in the first piece
    bodies[1][10 * 2052 - 1] = 243;                   // in the last one
    std::vector<BodyView> views(3);
    for (std::size_t r = 0; r < 3; ++r) REQUIRE(views[r].open(*codec, partition, bodies[r]) == "");
    for (const int threads : {1, 2, 3}) {
      Workers workers(threads);
      std::vector<float> out(partition.count());
      CHECK(decode_add(*codec, partition, views, {}, out.data(), false, workers) == 1);
    }
  }

  TEST_CASE("truncated pieces are refused by every codec") {
    for (const auto& codec : all_codecs())
      for (const std::size_t count : {1, 5, 160, 999, 10240}) {
        const auto values = make_sparse(0.1, count, count);
        std::vector<std::uint8_t> piece(codec->piece_bound(count));
        piece.resize(codec->encode_piece(
            {values.data(), nullptr, nullptr, count, {}, codec->select(values.data(), nullptr, count, {})},
            piece.data()));
        Guarded<float> acc(count);
        CHECK(codec->decode_add_piece(piece, count, {}, acc.data()));
        // No bytes at all are a piece of which nothing is selected.
        const std::size_t most = piece.size() - (codec->traits().selects && !piece.empty());
        for (std::size_t cut = 1; cut <= std::min<std::size_t>(most, 70); ++cut) {
          const std::vector<std::uint8_t> shorter(piece.begin(), piece.end() - static_cast<std::ptrdiff_t>(cut));
          // The first of two planes of votes is a piece without zeros; its length stands in the body.
          const bool legal = codec->traits().votes && 2 * cut == piece.size();
          CHECK(codec->decode_add_piece(shorter, count, {}, acc.data()) == legal);
        }
        piece.push_back(121);
        CHECK_FALSE(codec->decode_add_piece(piece, count, {}, acc.data()));
        CHECK(acc.intact());
      }
  }

  TEST_CASE("threads share the pieces of a tensor, and bodies and memories do not depend on them") {
    for (const auto& codec : all_codecs())
      for (const std::vector<std::uint64_t>& cut : {std::vector<std::uint64_t>{260000},
                                                    {190000, 5, 7000, 1},
                                                    {71000},
                                                    {3, 1, 2},
                                                    {102400, 30720, 20481, 40960}}) {
        CAPTURE(codec->spec());
        ChunkPartition partition;
        for (const std::uint64_t count : cut) partition.add_group(count);
        const std::size_t count = partition.count(), groups = cut.size();
        const auto values = make_data(Data::normal, 3, count);
        struct Done {
          Bytes body;
          std::vector<float> memory;
          bool operator==(const Done&) const = default;
        };
        const auto encode = [&](int threads, std::size_t* shared) {
          Done done;
          done.memory.assign(codec->feedback_elements(count) + 64 * groups, 0.25f);
          std::vector<FeedbackView> feedback;
          float* at = done.memory.data();
          const int arrays = codec->feedback().arrays();
          if (codec->feedback().kept())
            for (const auto& group : partition.groups()) {
              feedback.push_back(feedback_of(*codec, at, arrays, group.count, 0));
              at += codec->feedback_elements(group.count);
            }
          std::vector<float> scratch(count);
          done.body.resize(partition.body_bound(*codec));
          Workers workers(threads);
          done.body.resize(encode_body(*codec, partition, values.data(), feedback, {}, done.body.data(), scratch.data(),
                                       workers, [&] { *shared += 1; }));
          return done;
        };
        std::size_t pieces = 0;
        const Done expected = encode(1, &pieces);
        CHECK(pieces == partition.pieces().size());
        for (const int threads : {2, 3, 5}) {
          CAPTURE(threads);
          std::size_t shared = 0;
          CHECK((encode(threads, &shared) == expected));
          // Who would have fewer than eight pieces is left asleep.
          const std::size_t shares = std::clamp<std::size_t>(pieces / 8, 1, static_cast<std::size_t>(threads));
          if (!codec->traits().selects) CHECK(shared == pieces / shares);
        }
      }
  }

  TEST_CASE("progress is called between pieces on the calling thread") {
    const auto codec = make_codec("3lc");
    ChunkPartition partition;  // enough for three threads
    for (const std::uint64_t count : {120000, 7, 140000}) partition.add_group(count);
    const auto values = make_data(Data::normal, 4, partition.count());
    for (const int threads : {1, 3}) {
      Workers workers(threads);
      int calls = 0;  // not atomic: another thread's call would be a race
      Bytes body(partition.body_bound(*codec));
      body.resize(
          encode_body(*codec, partition, values.data(), {}, {}, body.data(), nullptr, workers, [&] { ++calls; }));
      CHECK(calls > 0);
      calls = 0;
      BodyView view;
      REQUIRE(view.open(*codec, partition, body) == "");
      std::vector<float> out(partition.count());
      CHECK(decode_add(*codec, partition, std::span(&view, 1), {}, out.data(), false, workers, [&] { ++calls; }) == -1);
      CHECK(calls > 0);
    }
  }
}
