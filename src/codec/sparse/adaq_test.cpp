// AdaQ: the facts of WIRE_FORMAT.md, section 4.17.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "codec/codec.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("adaq") {
  TEST_CASE("the example of the format") {
    // Positives 1, 0.49, 0.51: half of them rounds to 2; negatives -0.6, -1: 1.
    const auto codec = make_codec("adaq:ratio=0.5");
    std::vector<float> residual(37);
    const Bytes bytes = encode(*codec, example37(), residual.data());
    CHECK(bytes == Bytes{3, 0, 0xae, 0x47, 0x41, 0x3f, 0, 0, 0x80, 0x3f, 0x04, 0, 11, 23});
    const float mean = (1.0f + 0.51f) / 2;
    std::vector<float> d(37);
    CHECK(codec->decode_add_piece(bytes, 37, {}, d.data()));
    CHECK(d[0] == mean);
    CHECK(d[12] == mean);
    CHECK(d[36] == -1.0f);
    CHECK(d[3] == 0.0f);
    CHECK(residual[0] == 1.0f - mean);
    CHECK(residual[12] == 0.51f - mean);
    CHECK(residual[3] == -0.6f);
    CHECK(residual[36] == 0.0f);
  }

  TEST_CASE("the shares are of the positives and of the negatives, each on its own") {
    std::vector<float> a(10000);
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] = i % 10 == 0 ? -1.0f - 1e-4f * static_cast<float>(i) : i % 10 < 5 ? 1e-3f * static_cast<float>(i) : 0.0f;
    const auto d = through(*make_codec("adaq"), a);
    std::size_t plus = 0, minus = 0;
    for (const float x : d) plus += x > 0, minus += x < 0;
    CHECK(plus == 40);
    CHECK(minus == 10);
  }

  TEST_CASE("one sign only: the other mean is zero and unused") {
    std::vector<float> a(300, 0.5f);
    CHECK(through(*make_codec("adaq:ratio=1"), a) == a);
    for (float& x : a) x = -x;
    CHECK(through(*make_codec("adaq:ratio=1"), a) == a);
  }

  TEST_CASE("a quarter of the field's four bytes a kept element") {
    const auto a = make_data(Data::normal, 1, 10240);
    CHECK(encode(*make_codec("adaq"), a).size() < 10 + 13 + 102 * 5 / 4);
  }

  TEST_CASE("means are at most 2^114 however large the residual is, which no longer grows then") {
    const auto a = make_data(Data::normal, 6, 10240);
    for (const char* spec : {"adaq:ratio=0.01", "adaq:ratio=1"})
      for (const float size : {0x1p110f, 0x1p118f, 0x1p126f})
        for (const bool alternating : {false, true}) {
          const auto codec = make_codec(spec);
          CAPTURE(codec->spec());
          CAPTURE(size);
          std::vector<float> residual(a.size(), size);
          for (std::size_t i = 0; i < a.size() && alternating; i += 2) residual[i] = -size;
          for (int step = 0; step < 5; ++step) {
            auto before = a;
            for (std::size_t i = 0; i < a.size(); ++i) before[i] += residual[i];
            std::vector<float> d(a.size());
            REQUIRE(decodes(*codec, encode(*codec, a, residual.data(), residual.data()), d));
            for (std::size_t i = 0; i < d.size(); ++i)
              if (!(std::isfinite(10240 * d[i]) && std::fabs(d[i]) <= 0x1p114f && residual[i] == before[i] - d[i]))
                FAIL(i, ": ", d[i]);
          }
          for (const float x : residual) REQUIRE(std::fabs(x) <= std::max(size, 0x1p115f));
        }
  }

  TEST_CASE("malformed pieces are refused") {
    const auto codec = make_codec("adaq:ratio=0.5");
    const Bytes good = encode(*codec, example37());
    const auto refused = [&](auto&& change) { return refuses(*codec, good, 37, change); };
    CHECK_FALSE(refused([](Bytes&) {}));
    CHECK(refused([](Bytes& b) { b[0] = 2; }));
    CHECK(refused([](Bytes& b) { b[1] = 0x40; }));
    CHECK(refused([](Bytes& b) { b[1] = 0x80; }));
    CHECK(refused([](Bytes& b) { b[5] = 0xbf; }));                    // a negative mean
    CHECK(refused([](Bytes& b) { b[4] = 0x80, b[5] = 0x7f; }));       // an infinite one
    CHECK(refused([](Bytes& b) { b[2] = b[3] = b[4] = b[5] = 0; }));  // zero, but used
    CHECK(refused([](Bytes& b) { b[10] = 0; }));                      // a mean that nothing uses
    CHECK(refused([](Bytes& b) { b[10] = 0x0c; }));                   // a sign beyond the elements
    CHECK(refused([](Bytes& b) { b.at(13) = 25; }));
    CHECK(refused([](Bytes& b) { b.pop_back(); }));
    CHECK(refused([](Bytes& b) { b.push_back(0); }));
  }
}
