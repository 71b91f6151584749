// 8-bit floats: the facts of WIRE_FORMAT.md, section 4.15, each on its own.
#include "codec/fp8/fp8.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("fp8") {
  namespace {

  // Of a code without sign, from the standard's definition.
  float value(bool e4m3, int code) {
    const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, e = code >> mantissa, m = code % (1 << mantissa);
    return std::ldexp(static_cast<float>(e ? (1 << mantissa) + m : m), (e ? e : 1) - bias - mantissa);
  }

  }  // namespace

  TEST_CASE("the example of the format and the largest values") {
    CHECK(encode(*make_codec("fp8"), {1.0f, -0.6f, 0.49f, 0.0f}) == Bytes{119, 0x78, 0xf2, 0x70, 0x00});
    // 448 and 57344 fit scale 1, the next float does not.
    for (const bool e4m3 : {true, false}) {
      const auto codec = make_codec(e4m3 ? "fp8:format=e4m3" : "fp8:format=e5m2");
      const float top = e4m3 ? 448.0f : 57344.0f;
      const std::uint8_t last = e4m3 ? 0x7e : 0x7b;
      CHECK(value(e4m3, last) == top);
      CHECK(encode(*codec, {top}) == Bytes{127, last});
      CHECK(encode(*codec, {std::nextafter(top, 1e9f)})[0] == 128);
      CHECK(encode(*codec, {-top * 0x1p-50f}) == Bytes{77, static_cast<std::uint8_t>(128 + last)});
    }
  }

  TEST_CASE("every code is its value and comes back") {
    for (const bool e4m3 : {true, false}) {
      const auto codec = make_codec(e4m3 ? "fp8:format=e4m3,block=256" : "fp8:format=e5m2,block=256");
      const int last = e4m3 ? 0x7e : 0x7b;
      for (const int k : {127, 24, 220}) {
        std::vector<float> a;
        Bytes bytes{static_cast<std::uint8_t>(k)};
        for (int sign : {0, 128})
          for (int code = 0; code <= last; ++code) {
            const float size = std::ldexp(value(e4m3, code), k - 127);
            a.push_back(sign ? -size : size);
            bytes.push_back(static_cast<std::uint8_t>(code + sign));
          }
        std::vector<float> out(a.size()), residual(a.size()), zeros(a.size());
        REQUIRE(decodes(*codec, bytes, out));
        for (float& x : a) x += 0.0f;  // sums have no -0
        CHECK(difference(out, a) == "");
        bytes[static_cast<std::size_t>(last) + 2] = 0;
        CHECK(encode(*codec, a, residual.data()) == bytes);
        CHECK(difference(residual, zeros) == "");
      }
    }
  }

  TEST_CASE("between two values the nearest is taken, in the middle the even one") {
    for (const bool e4m3 : {true, false}) {
      const auto codec = make_codec(e4m3 ? "fp8:format=e4m3" : "fp8:format=e5m2");
      const int last = e4m3 ? 0x7e : 0x7b;
      const float top = value(e4m3, last);
      for (int code = 0; code < last; ++code) {
        const float low = value(e4m3, code), high = value(e4m3, code + 1), middle = (low + high) / 2;
        const Bytes bytes = encode(*codec, {top, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, top)});
        CHECK(bytes == Bytes{127, static_cast<std::uint8_t>(last), static_cast<std::uint8_t>(code + code % 2),
                             static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(code + 1)});
      }
    }
  }

  TEST_CASE("a block's scale is its own") {
    const auto codec = make_codec("fp8:block=32");
    CHECK(codec->piece_bound(10240) == 10240 + 320);
    CHECK(make_codec("fp8")->piece_bound(129) == 131);
    std::vector<float> a(64, 1.0f);
    for (std::size_t i = 0; i < 32; ++i) a[i] = 1e20f;
    std::vector<float> out(64);
    REQUIRE(decodes(*codec, encode(*codec, a), out));
    for (std::size_t i = 32; i < 64; ++i) CHECK(out[i] == 1.0f);
  }

  TEST_CASE("what is sent is at most 1.75 * 2^113 however large the residual is, which no longer grows then") {
    const auto a = make_data(Data::normal, 6, 1000);
    for (const char* spec : {"fp8:format=e4m3", "fp8:format=e5m2", "fp8:format=e4m3,block=32"})
      for (const float size : {0x1p110f, 0x1.cp113f, 0x1p114f, 0x1p118f, 0x1p126f, 0x1.fffffep127f}) {
        const auto codec = make_codec(spec);
        CAPTURE(codec->spec());
        CAPTURE(size);
        std::vector<float> residual(a.size());
        for (std::size_t i = 0; i < a.size(); ++i)
          residual[i] = i % 3 == 0 ? -size : i % 3 == 1 ? size / static_cast<float>(i) : size;
        for (int step = 0; step < 5; ++step) {
          auto before = a;
          for (std::size_t i = 0; i < a.size(); ++i) before[i] += residual[i];
          std::vector<float> d(a.size());
          REQUIRE(decodes(*codec, encode(*codec, a, residual.data(), residual.data()), d));
          for (std::size_t i = 0; i < d.size(); ++i) {
            if (!(std::isfinite(10240 * d[i]) && std::fabs(d[i]) <= 0x1.cp113f && residual[i] == before[i] - d[i]))
              FAIL(i, ": ", d[i]);
            if (std::fabs(before[i]) > 0x1.cp113f && d[i] != std::copysign(0x1.cp113f, before[i])) FAIL(i, ": ", d[i]);
          }
        }
        for (const float x : residual) REQUIRE(std::fabs(x) <= size);
      }
  }

  TEST_CASE("scales and codes that the format does not know are refused") {
    for (const bool e4m3 : {true, false}) {
      const auto codec = make_codec(e4m3 ? "fp8:format=e4m3" : "fp8:format=e5m2");
      const int last = e4m3 ? 0x7e : 0x7b;
      for (const std::size_t count : {1, 17, 128, 200}) {
        const Bytes good = encode(*codec, std::vector<float>(count, 1.0f));
        std::vector<float> out(count);
        CHECK(decodes(*codec, good, out));
        for (const int k : {239, 255}) {
          Bytes bad = good;
          bad[0] = static_cast<std::uint8_t>(k);
          CHECK_FALSE(decodes(*codec, bad, out));
        }
        for (std::size_t at = good.size() - count; at < good.size(); ++at)
          for (int code = last + 1; code < 128; ++code)
            for (const int sign : {0, 128}) {
              Bytes bad = good;
              bad[at] = static_cast<std::uint8_t>(code + sign);
              CHECK_FALSE(decodes(*codec, bad, out));
            }
      }
      std::vector<float> out(3);
      CHECK(decodes(*codec, {0, 0, 0x80, 0}, out));
      CHECK_FALSE(decodes(*codec, {0, 0, 1, 0}, out));
      CHECK(decodes(*codec, {238, static_cast<std::uint8_t>(last), 0, 0}, out));
      CHECK(std::isfinite(out[0]));
    }
  }

  TEST_CASE("parameters") {
    CHECK(make_codec("fp8")->spec() == "fp8:format=e4m3,block=128");
    CHECK(make_codec("fp8:format=e5m2,block=64")->parameter_word() == (1u | 64u << 8));
    for (const char* spec : {"fp8:block=0", "fp8:block=48", "fp8:block=10272", "fp8:format=e3m4", "fp8:block=nan"})
      CHECK_THROWS_AS(make_codec(spec), Error);
  }
}
