// The facts of WIRE_FORMAT.md, section 4.13.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("inceptionn") {
  namespace {

  // The class of a single value.
  int class_of(const Codec& codec, float x) {
    const Bytes bytes = encode(codec, {x});
    const int c = bytes[0] + 2 * bytes[1];
    CHECK(bytes.size() == 2 + (c == 0 ? 0 : std::size_t{1} << (c - 1)));
    return c;
  }

  }  // namespace

  TEST_CASE("the example of the format") {
    const auto codec = make_codec("inceptionn");
    const std::vector<float> a{0.5f, -0.001953125f, 0.0001f, -1.5f, 0.03f, 0.0f, 0.0009765625f, -0.25f, 2.0f};
    // Low and high bits of the classes 2 1 0 3 1 0 1 2 3; then 8, 123 and 4 units of 2^-12, halves of 2^-15, floats.
    const Bytes expected{0x5a, 0x01, 0x89, 0x01, 0x88, 123, 4, 0x00, 0x40, 0x00, 0xa0, 0, 0, 0xc0, 0xbf, 0, 0, 0, 0x40};
    std::vector<float> residual(9);
    CHECK(encode(*codec, a, residual.data()) == expected);
    CHECK(difference(decode(*codec, expected, 9),
                     {0.5f, -0.001953125f, 0.0f, -1.5f, 123 * 0x1p-12f, 0.0f, 0.0009765625f, -0.25f, 2.0f}) == "");
    CHECK(residual[2] == 0.0001f);
    CHECK(residual[4] == 0.03f - 123 * 0x1p-12f);
  }

  TEST_CASE("classes change exactly at powers of two") {
    // GRACE's bound of 2e-10 is a slip for 2^-10, and its cut-offs come from log10 of it. MICRO 2018: 2^-10, half the
    // exponent, 1.
    for (int e = 2; e <= 14; ++e) {
      const auto codec = make_codec("inceptionn:log2_bound=-" + std::to_string(e));
      const float limits[] = {std::ldexp(1.0f, -e), std::ldexp(1.0f, -(e + 1) / 2), 1.0f};
      CAPTURE(e);
      for (int c = 0; c < 3; ++c)
        for (const float sign : {1.0f, -1.0f}) {
          CHECK(class_of(*codec, sign * limits[c]) == c + 1);
          CHECK(class_of(*codec, sign * std::nextafter(limits[c], 0.0f)) == c);
        }
    }
    CHECK(make_codec("inceptionn")->spec() == "inceptionn:log2_bound=-10");
  }

  TEST_CASE("no value is off by more than the bound, at any bound") {
    for (int e = 2; e <= 14; ++e) {
      const auto codec = make_codec("inceptionn:log2_bound=-" + std::to_string(e));
      std::vector<float> a;
      for (float x = 0x1p-18f; x < 4.0f; x *= 1.003f) a.insert(a.end(), {x, -x});
      for (int k = -16; k <= 1; ++k)
        for (const float x : {std::nextafter(std::ldexp(1.0f, k), 0.0f), std::ldexp(1.0f, k)})
          a.insert(a.end(), {x, -x});
      REQUIRE(a.size() < 10240);
      const auto d = decode(*codec, encode(*codec, a), a.size());
      int wrong = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double error = std::fabs(static_cast<double>(a[i]) - static_cast<double>(d[i]));
        wrong += !(error <= std::ldexp(1.0, -e)) || (std::fabs(a[i]) >= 1 && error != 0) || d[i] * a[i] < 0;
      }
      CAPTURE(e);
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("sizes: two bits a value and what the classes take") {
    const auto codec = make_codec("inceptionn");
    CHECK(encode(*codec, std::vector<float>(10240, 0.0f)).size() == 2560);
    CHECK(encode(*codec, std::vector<float>(10240, 0.01f)).size() == 2560 + 10240);
    CHECK(encode(*codec, std::vector<float>(10240, -0.5f)).size() == 2560 + 20480);
    CHECK(encode(*codec, std::vector<float>(10240, 0x1p100f)).size() == 2560 + 40960);
    CHECK(codec->piece_bound(10240) == 2560 + 40960);
  }

  TEST_CASE("sizes that the classes do not give, padding and floats that are not finite are refused") {
    const auto codec = make_codec("inceptionn");
    std::vector<float> acc(3);
    CHECK_FALSE(decodes(*codec, {}, acc));
    CHECK_FALSE(decodes(*codec, {0}, acc));
    CHECK_FALSE(decodes(*codec, {8, 0}, acc));
    CHECK_FALSE(decodes(*codec, {0, 0x80}, acc));
    CHECK_FALSE(decodes(*codec, {8, 0, 5}, acc));
    CHECK_FALSE(decodes(*codec, {0, 0x10, 5, 5}, acc));
    CHECK_FALSE(decodes(*codec, {1, 0}, acc));
    CHECK_FALSE(decodes(*codec, {0, 1, 5}, acc));
    CHECK_FALSE(decodes(*codec, {1, 0, 5, 5}, acc));
    CHECK_FALSE(decodes(*codec, {1, 1, 0, 0, 0x80, 0x7f}, acc));
    CHECK_FALSE(decodes(*codec, {1, 1, 1, 0, 0xc0, 0xff}, acc));
    CHECK(difference(acc, std::vector<float>(3)) == "");
    CHECK(decodes(*codec, {1, 2, 0xff, 0xff, 0xff}, acc));
    CHECK(difference(acc, {-127 * 0x1p-12f, -32767 * 0x1p-15f, 0.0f}) == "");
  }

  TEST_CASE("the bound is a whole power of two from 2^-14 to 2^-2") {
    for (const char* bad : {"-1", "-15", "10", "-9.5", "0", "nan", "2e-10x"}) {
      std::string what;
      try {
        make_codec(std::string("inceptionn:log2_bound=") + bad);
      } catch (const Error& e) {
        what = e.what();
      }
      CHECK(what.find(std::string("log2_bound is '") + bad) != what.npos);
    }
    CHECK(make_codec("inceptionn:log2_bound=-4")->parameter_word() == 4);
  }
}
