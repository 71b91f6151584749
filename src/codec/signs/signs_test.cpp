// The facts of WIRE_FORMAT.md, sections 4.9 to 4.12, and what other implementations of these methods got wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/payload.hpp"
#include "core/error.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("signs") {
  namespace {

  // The result of an allreduce over ranks with these values.
  std::vector<float> reduce(const Codec& codec, const std::vector<std::vector<float>>& ranks) {
    Workers workers(1);
    ChunkPartition partition;
    partition.add_group(ranks[0].size());
    std::vector<Bytes> bodies;
    for (const auto& values : ranks) {
      bodies.emplace_back(partition.body_bound(codec));
      encode_body(codec, partition, values.data(), {}, {}, bodies.back().data(), nullptr, workers);
    }
    std::vector<BodyView> views(ranks.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) REQUIRE(views[r].open(codec, partition, bodies[r]) == "");
    std::vector<float> out(ranks[0].size());
    CHECK(decode_add(codec, partition, views, {}, out.data(), false, workers) == -1);
    return out;
  }

  }  // namespace

  TEST_CASE("the example of the format") {
    const std::vector<float> a{0.5f, -1.0f, 0.0f, -0.0f, -3.0f, 2.5f, -0.5f, 1.0f, 0.25f, -0.25f};
    const Bytes plane{0x52, 0x02};  // elements 1, 4, 6 and 9
    // The negatives' magnitudes: 4.75 / 4; the others: 4.25 / 6. All: 9 / 10.
    const float m1 = 4.25f / 6.0f;
    CHECK(encode(*make_codec("1bit"), a) == piece_of({1.1875f, m1}, plane));
    const Bytes votes{0x52, 0x02, 0x0c, 0x00};  // elements 2 and 3 are zeros
    CHECK(encode(*make_codec("signsgd"), a) == votes);
    CHECK(encode(*make_codec("signum"), a) == votes);
    CHECK(encode(*make_codec("efsignsgd"), a) == piece_of({0.9f}, plane));
    std::vector<float> residual(a.size());
    encode(*make_codec("1bit"), a, residual.data());
    CHECK(residual[1] == -1.0f + 1.1875f);
    CHECK(residual[2] == -m1);
    CHECK(residual[5] == 2.5f - m1);
  }

  TEST_CASE("one bit a value and nothing else but the scales") {  // GRACE, BytePS and others send a byte a value
    for (const std::size_t count : {1, 8, 9, 31, 33, 10240}) {
      const std::size_t plane = (count + 7) / 8;
      for (const char* name : {"signsgd", "signum"}) {
        CHECK(encode(*make_codec(name), std::vector<float>(count, -1.0f)).size() == plane);
        CHECK(encode(*make_codec(name), std::vector<float>(count)).size() == 2 * plane);
        CHECK(make_codec(name)->piece_bound(count) == 2 * plane);
      }
      CHECK(make_codec("efsignsgd")->piece_bound(count) == plane + 4);
      CHECK(make_codec("1bit")->piece_bound(count) == plane + 8);
    }
  }

  TEST_CASE("bit i mod 32 of word i / 32 is element i") {
    const auto codec = make_codec("signsgd");
    for (const std::size_t count : {100, 130, 10240})
      for (std::size_t i = 0; i < count; i += 1 + i / 200) {
        std::vector<float> a(count, 0.5f);
        a[i] = -0x1p-149f;
        const Bytes bytes = encode(*codec, a);
        Bytes expected(bytes.size());
        expected[i / 32 * 4 + i % 32 / 8] = static_cast<std::uint8_t>(1 << i % 8);
        CHECK(bytes == expected);
        std::vector<float> signs(count, 1.0f);
        signs[i] = -1.0f;
        CHECK(difference(decode(*codec, bytes, count), signs) == "");
      }
  }

  TEST_CASE("zeros of either sign are no votes, and zeros of all ranks stay zeros") {
    const std::vector<float> a{0.0f, -0.0f, 0.0f, -0.0f, -0.0f}, b{1.0f, -2.0f, 0.0f, -0.0f, 0x1p-149f};
    CHECK(encode(*make_codec("signsgd"), a) == Bytes{0, 0x1f});
    CHECK(difference(reduce(*make_codec("signsgd"), {a, a, a}), std::vector<float>(5)) == "");
    CHECK(difference(reduce(*make_codec("signsgd"), {a, b, a}), {3.0f, -3.0f, 0.0f, 0.0f, 3.0f}) == "");
    // Wherever in a piece the one zero is.
    for (const std::size_t count : {1, 63, 64, 65, 200})
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<float> one(count, -1.0f);
        one[i] = -0.0f;
        const Bytes bytes = encode(*make_codec("signsgd"), one);
        REQUIRE(bytes.size() == 2 * ((count + 7) / 8));
        auto expected = one;
        expected[i] = 0.0f;
        CHECK(difference(decode(*make_codec("signsgd"), bytes, count), expected) == "");
      }
    std::vector<float> residual(5);
    for (const char* spec : {"1bit", "efsignsgd"}) {  // and no 0 / 0
      const auto codec = make_codec(spec);
      CHECK(difference(decode(*codec, encode(*codec, a, residual.data()), 5), std::vector<float>(5)) == "");
      CHECK(difference(residual, a) == "");
    }
  }

  TEST_CASE("1bit: each class decodes to its own mean, an empty class to nothing") {
    // Defect of GRACE's DDP version, MergeComp and Cupcake: ~ on bytes of 0 and 1 makes the mean of the others 254 or
    // 255 times too large.
    const auto codec = make_codec("1bit");
    const auto a = make_data(Data::normal, 5, 1000);
    double sums[2] = {}, counts[2] = {};
    for (const float x : a) sums[x < 0] += static_cast<double>(x), counts[x < 0] += 1;
    const auto d = decode(*codec, encode(*codec, a), a.size());
    double wrong = 0, total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      wrong = std::max(wrong, std::fabs(static_cast<double>(d[i]) - sums[a[i] < 0] / counts[a[i] < 0]));
      total += static_cast<double>(d[i]) - static_cast<double>(a[i]);
    }
    CHECK(wrong < 1e-6);
    CHECK(std::fabs(total) < 1e-3);  // the piece's sum is kept
    for (const float x : {1.5f, -1.5f, 0x1p100f, -0x1p100f, 0x1p-149f, -0x1p-149f})
      for (const std::size_t count : {1, 64, 10240}) {
        const std::vector<float> same(count, x);
        std::vector<float> residual(count, 7.0f);
        CHECK(difference(decode(*codec, encode(*codec, same, residual.data()), count), same) == "");
        CHECK(difference(residual, std::vector<float>(count)) == "");
      }
  }

  TEST_CASE("sums are taken over 64 lanes and a tree") {
    // Lane 0 gets 2^24, then 1 twice, each lost; lanes 1 and 33 get 1 each, which survive because they meet before they
    // meet lane 0.
    std::vector<float> a(192);
    a[0] = 0x1p24f;
    a[64] = a[128] = a[1] = a[33] = 1.0f;
    const Bytes bytes = encode(*make_codec("efsignsgd"), a);
    float mean;
    std::memcpy(&mean, bytes.data(), sizeof mean);
    CHECK(mean == (0x1p24f + 2.0f) / 192.0f);
    // Lane 32 meets lane 0 first and lane 31 meets it alone.
    std::vector<float> apart(64);
    apart[0] = 0x1p24f;
    apart[31] = apart[32] = 1.0f;
    const Bytes lost = encode(*make_codec("efsignsgd"), apart);
    std::memcpy(&mean, lost.data(), sizeof mean);
    CHECK(mean == 0x1p18f);
  }

  TEST_CASE("sums of the largest values with their residuals stay finite") {
    const std::vector<float> a(10240, 0x1p100f), in(10240, 0x1p110f);
    for (const char* spec : {"1bit", "efsignsgd"}) {
      std::vector<float> out(10240);
      const auto codec = make_codec(spec);
      const auto d = decode(*codec, encode(*codec, a, out.data(), in.data()), 10240);
      CHECK(d[17] == 0x1p100f + 0x1p110f);
      CHECK(out[17] == 0.0f);
    }
  }

  TEST_CASE("scales are at most 2^114 however large the residual is, which no longer grows then") {
    const auto a = make_data(Data::normal, 6, 10240);
    for (const char* spec : {"1bit", "efsignsgd", "efsignsgd:scale=tensor"})
      for (const float size : {0x1p110f, 0x1p118f, 0x1p126f})
        for (const bool alternating : {false, true}) {
          const auto codec = make_codec(spec);
          CAPTURE(codec->spec());
          CAPTURE(size);
          std::vector<float> residual(a.size(), size);
          for (std::size_t i = 0; i < a.size() && alternating; i += 2) residual[i] = -size;
          for (int step = 0; step < 5; ++step) {
            auto d = a;
            for (std::size_t i = 0; i < d.size(); ++i) d[i] += residual[i];
            const auto before = d;
            d = decode(*codec, encode(*codec, a, residual.data(), residual.data()), a.size());
            for (std::size_t i = 0; i < d.size(); ++i)
              if (!(std::isfinite(10240 * d[i]) && std::fabs(d[i]) <= 0x1p114f && residual[i] == before[i] - d[i]))
                FAIL(i, ": ", d[i]);
          }
          for (const float x : residual) REQUIRE(std::fabs(x) <= std::max(size, 0x1p115f));
        }
  }

  TEST_CASE("efsignsgd: every call and every number of ranks is scaled alike") {
    // GRACE's version multiplies by a fixed rate from the second call on but divides by it always, and its torch
    // version never averages.
    const auto codec = make_codec("efsignsgd");
    const auto a = make_data(Data::normal, 3, 500);
    std::vector<float> residual(a.size());
    const auto first = decode(*codec, encode(*codec, a, nullptr, nullptr), a.size());
    const auto with_memory = decode(*codec, encode(*codec, a, nullptr, residual.data()), a.size());
    CHECK(difference(first, with_memory) == "");
    double mean = 0;
    for (const float x : a) mean += std::fabs(static_cast<double>(x)) / 500;
    CHECK(std::fabs(static_cast<double>(first[0])) == doctest::Approx(mean));
    const auto four = reduce(*codec, {a, a, a, a});
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(four[i] == 4.0f * first[i]);
  }

  TEST_CASE("signsgd: the majority times the ranks, a tie is 0") {
    const auto codec = make_codec("signsgd");
    const std::vector<float> up(70, 2.0f), down(70, -0.001f);
    using Ranks = std::vector<std::vector<float>>;
    const std::tuple<Ranks, float> cases[] = {{{up}, 1.0f},
                                              {{down}, -1.0f},
                                              {{up, down}, 0.0f},
                                              {{up, down, up}, 3.0f},
                                              {{down, down, up}, -3.0f},
                                              {{up, up, down, down}, 0.0f},
                                              {{down, up, down, down}, -4.0f}};
    for (const auto& [ranks, result] : cases)
      CHECK(difference(reduce(*codec, ranks), std::vector<float>(70, result)) == "");
    std::vector<float> many{-7.0f, 0.0f, 5.0f};
    codec->finish_piece(many.data(), 3, 1001);
    CHECK(difference(many, {-1001.0f, 0.0f, 1001.0f}) == "");
    std::vector<float> sums{-7.0f, 0.0f, 5.0f};
    make_codec("1bit")->finish_piece(sums.data(), 3, 9);
    CHECK(difference(sums, {-7.0f, 0.0f, 5.0f}) == "");
  }

  TEST_CASE("signum: the sign of a running average that belongs to the tensor") {
    const auto codec = make_codec("signum");
    CHECK(codec->feedback().kind == FeedbackKind::average);
    CHECK(codec->feedback().momentum == 0.9f);
    const std::size_t sizes[] = {70, 31};
    ChunkPartition partition;
    for (const std::size_t n : sizes) partition.add_group(n);
    Workers workers(1);
    std::vector<float> memory(101), scratch(scratch_elements(*codec, 101, true));
    std::vector<FeedbackView> feedback;
    for (const auto& g : partition.groups()) feedback.push_back({memory.data() + g.offset, memory.data() + g.offset});
    std::vector<double> average(101);
    for (std::uint64_t step = 0; step < 20; ++step) {
      auto g = make_data(Data::normal, 60 + step, 101);
      for (std::size_t i = 0; i < 101; i += 3)
        g[i] = step == 0 ? 10.0f : -0.5f;  // one large gradient outweighs many small ones for a while
      Bytes body(partition.body_bound(*codec));
      encode_body(*codec, partition, g.data(), feedback, {}, body.data(), scratch.data(), workers);
      const std::uint8_t* const plane = body.data() + partition.prefix_bytes(*codec);
      int wrong = 0;
      for (std::size_t i = 0; i < 101; ++i) {
        average[i] = 0.9 * average[i] + 0.1 * static_cast<double>(g[i]);
        const bool bit = i < 70 ? plane[i / 8] >> i % 8 & 1 : plane[9 + (i - 70) / 8] >> (i - 70) % 8 & 1;
        wrong += std::fabs(average[i]) > 1e-6 && bit != (average[i] < 0);
        wrong += std::fabs(average[i] - static_cast<double>(memory[i])) > 1e-5;
      }
      CHECK(wrong == 0);
      CHECK((plane[0] & 1) == (average[0] < 0));
    }
    CHECK(average[0] < 0);
  }

  TEST_CASE("signs without scale refuse a residual unless forced") {  // GRACE's table: SignSGD with error feedback
                                                                      // falls from 63 % to 15 %
    for (const char* name : {"signsgd", "signum"}) {
      const std::string spec = std::string(name) + ":memory=residual";
      std::string what;
      try {
        make_codec(spec);
      } catch (const Error& e) {
        what = e.what();
      }
      CHECK(what.find("diverge") != what.npos);
      CHECK(what.find("force=1") != what.npos);
      CHECK(make_codec(spec + ",force=1")->feedback().kind == FeedbackKind::residual);
    }
    // Momentum keeps the same residual.
    for (const std::string spec : {"signum:memory=momentum", "qsgd:s=4,memory=momentum", "terngrad:memory=momentum",
                                   "randomk:ratio=0.1,scale=1,memory=momentum"}) {
      CAPTURE(spec);
      CHECK_THROWS_AS(make_codec(spec), Error);
      const auto forced = make_codec(spec + ",force=1");
      CHECK(make_codec(forced->spec())->spec() == forced->spec());
    }
    CHECK(make_codec("1bit")->feedback().kind == FeedbackKind::residual);
    CHECK(make_codec("efsignsgd")->feedback().kind == FeedbackKind::residual);
    CHECK(make_codec("signsgd")->feedback().kind == FeedbackKind::none);
  }

  TEST_CASE("a sign has no smallest magnitude") {
    for (const char* name : {"signsgd", "signum"}) CHECK(make_codec(name)->traits().min_magnitude == 0.0f);
    for (const char* name : {"1bit", "efsignsgd"}) CHECK(make_codec(name)->traits().min_magnitude == 0x1p-80f);
  }

  TEST_CASE("illegal scales and set bits behind the last element are refused") {
    std::vector<float> acc(11);
    for (const float bad : {-1.0f, -0x1p-149f, HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      CHECK_FALSE(decodes(*make_codec("1bit"), piece_of({bad, 1.0f}, {0, 0}), acc));
      CHECK_FALSE(decodes(*make_codec("1bit"), piece_of({1.0f, bad}, {0, 0}), acc));
      CHECK_FALSE(decodes(*make_codec("efsignsgd"), piece_of({bad}, {0, 0}), acc));
    }
    for (int bit = 3; bit < 8; ++bit) {
      const auto byte = static_cast<std::uint8_t>(1 << bit);
      CHECK_FALSE(decodes(*make_codec("1bit"), piece_of({1.0f, 1.0f}, {0, byte}), acc));
      CHECK_FALSE(decodes(*make_codec("efsignsgd"), piece_of({1.0f}, {0, byte}), acc));
      CHECK_FALSE(decodes(*make_codec("signsgd"), {0, byte}, acc));
      CHECK_FALSE(decodes(*make_codec("signum"), {0, byte}, acc));
    }
    CHECK(difference(acc, std::vector<float>(11)) == "");
    CHECK_FALSE(decodes(*make_codec("signsgd"), {0, 0, 0, 8}, acc));
    CHECK_FALSE(decodes(*make_codec("signsgd"), {3, 0, 2, 0}, acc));  // element 1 negative and zero
    CHECK_FALSE(decodes(*make_codec("signsgd"), {0, 0, 0}, acc));
    CHECK(difference(acc, std::vector<float>(11)) == "");
    CHECK(decodes(*make_codec("signsgd"), {0xff, 7}, acc));
    CHECK(difference(acc, std::vector<float>(11, -1.0f)) == "");
  }
}
