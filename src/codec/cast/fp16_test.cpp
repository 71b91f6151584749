// fp16: the facts of WIRE_FORMAT.md, section 4.2, each on its own.
#include "codec/cast/fp16.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "codec/codec.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/half_reference.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("fp16") {
  namespace {

  const auto codec = make_codec("fp16");

  float half_of(float x) { return static_cast<float>(kHalf.value(kHalf.nearest(static_cast<double>(x)))); }

  }  // namespace

  TEST_CASE("the example of the format") {
    // 60000 needs 2^0, 3 needs 2^-14: 3 * 2^14 = 49152.
    CHECK(encode(*codec, {60000.0f, -1.0f}) == Bytes{127, 0, 0, 0, 0, 0, 0, 0, 0x53, 0x7b, 0x00, 0xbc});
    CHECK(encode(*codec, {3.0f}) == Bytes{113, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x7a});
    std::vector<float> a(2561);
    a[0] = 65504.0f, a[2560] = -0x1p-40f;
    const Bytes bytes = encode(*codec, a);
    CHECK(bytes.size() == 8 + 2 * 2561);
    CHECK(Bytes(bytes.begin(), bytes.begin() + 8) == Bytes{127, 1, 72, 0, 0, 0, 0, 0});  // -2^-40 is -2^15 of 2^-55
    CHECK(codec->piece_bound(10240) == 20488);
  }

  TEST_CASE("the scale is the least with which the largest value is a binary16") {
    CHECK(encode(*codec, {65504.0f})[0] == 127);
    CHECK(encode(*codec, {std::nextafter(65504.0f, 1e9f)})[0] == 128);
    CHECK(encode(*codec, {32752.0f})[0] == 126);
    for (const float x : {0.0f, -0.0f, 0x1p-149f, 0x1p-112f}) CHECK(encode(*codec, {x})[0] == 1);
    CHECK(encode(*codec, {0x1p-110f})[0] == 2);
    for (const float x : {0x1p-149f, -0x1p-126f, 0x1p-111f, 1.0f, -0x1p100f, 0x1.ffcp127f, -0x1.ffcp127f}) {
      CAPTURE(x);
      CHECK(through(*codec, {x})[0] == x);
    }
  }

  TEST_CASE("up to 65504 values decode as binary16 alone would, or nearer") {
    for (const float size : {0x1p-10f, 1.0f, 1000.0f, 12000.0f}) {
      auto a = make_data(Data::normal, 8, 3000);
      for (float& x : a) x *= size;
      const auto d = through(*codec, a);
      for (std::size_t i = 0; i < a.size(); ++i)
        if (std::fabs(a[i]) >= 0x1p-14f) {
          CHECK(d[i] == half_of(a[i]));
        } else {
          CHECK(std::fabs(d[i] - a[i]) <= std::fabs(half_of(a[i]) - a[i]));
        }
    }
  }

  TEST_CASE("every binary16 comes back from among others") {
    for (int block = 0; block < 0x7c00; block += 1279)
      for (const float top : {1.0f, 65504.0f}) {
        std::vector<float> a{top};
        for (int bits = block; bits < std::min(block + 1279, 0x7c00); ++bits)
          a.push_back(static_cast<float>(kHalf.value(static_cast<std::uint16_t>(bits))));
        for (std::size_t i = 1; i < a.size(); i += 2) a[i] = -a[i];
        std::vector<float> sum(a), d = through(*codec, a);
        for (float& x : sum) x += 0.0f;  // sums have no -0
        CHECK(difference(d, sum) == "");
      }
  }

  TEST_CASE("residuals are what is lost, in place too") {
    const auto a = make_data(Data::tiny, 3, 1281 + 5), before = make_data(Data::tiny, 4, a.size());
    std::vector<float> both(a), residual(before);
    for (std::size_t i = 0; i < a.size(); ++i) both[i] += before[i];
    const Bytes bytes = encode(*codec, a, residual.data(), residual.data());
    CHECK(bytes == encode(*codec, both));
    const auto d = decode(*codec, bytes, a.size());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(residual[i] == both[i] - d[i]);
  }

  TEST_CASE("illegal scale bytes are refused") {
    const Bytes good = encode(*codec, make_data(Data::normal, 1, 1300));
    CHECK_FALSE(refuses(*codec, good, 1300, [](Bytes&) {}));
    for (const int wrong : {0, 240, 255})
      for (const std::size_t b : {0, 1})
        CHECK(refuses(*codec, good, 1300, [&](Bytes& p) { p[b] = static_cast<std::uint8_t>(wrong); }));
    for (std::size_t b = 2; b < 8; ++b) CHECK(refuses(*codec, good, 1300, [&](Bytes& p) { p[b] = 1; }));
    CHECK(refuses(*codec, good, 1300, [](Bytes& p) { p.pop_back(); }));
    CHECK(refuses(*codec, good, 1300, [](Bytes& p) { p.push_back(0); }));
    // The largest that a piece can say is finite.
    Bytes top = good;
    top[0] = 239, top[8] = 0xff, top[9] = 0x7b;
    CHECK(decode(*codec, top, 1300)[0] == 0x1.ffcp127f);
  }

  TEST_CASE("sums of any size stay finite: no limit at 65504") {
    CHECK(codec->traits().max_magnitude == 0x1p100f);
    CHECK(codec->traits().min_magnitude == 0.0f);
    CHECK(through(*codec, {1e6f, 65519.0f})[0] == doctest::Approx(1e6).epsilon(0x1p-11));
  }
}
