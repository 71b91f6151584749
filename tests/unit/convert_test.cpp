#include "core/convert.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "core/half.hpp"
#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("convert") {
  namespace {

  constexpr Dtype kTypes[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};
  const float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

  // Random bit patterns: every exponent, NaN and infinity.
  std::vector<float> any_floats(std::size_t count) {
    std::vector<float> v(count);
    for (std::size_t i = 0; i < count; ++i) v[i] = std::bit_cast<float>(Random(7, 0).bits(i));
    return v;
  }

  std::uint16_t narrow1(Dtype t, float x) { return t == Dtype::f16 ? half_from_float(x) : bfloat_from_float(x); }
  float widen1(Dtype t, std::uint16_t h) { return t == Dtype::f16 ? float_from_half(h) : float_from_bfloat(h); }

  }  // namespace

  TEST_CASE("arrays convert as single elements do on every SIMD target") {
    const auto floats = any_floats(200003);
    for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
      std::vector<std::uint16_t> expected(floats.size()), all(65536);
      for (std::size_t i = 0; i < floats.size(); ++i) expected[i] = narrow1(type, floats[i]);
      std::vector<float> wide(all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<std::uint16_t>(i);
        wide[i] = widen1(type, all[i]);
      }
      for_each_target([&](const std::string& target) {
        CAPTURE(target);
        CAPTURE(std::string(name_of(type)));
        std::vector<std::uint16_t> got(floats.size());
        narrow(type, floats.data(), got.data(), floats.size());
        CHECK(difference(got, expected) == "");
        std::vector<float> back(all.size());
        widen(type, all.data(), back.data(), all.size());
        CHECK(difference(back, wide) == "");
        // Any start and any length: nothing but the range is written.
        for (std::size_t n = 0; n < 70; ++n) {
          Guarded<std::uint16_t> h(n);
          narrow(type, floats.data() + n, h.data(), n);
          CHECK(difference(h.span(), std::span<const std::uint16_t>(expected).subspan(n, n)) == "");
          Guarded<float> x(n);
          const std::size_t from = 0x8001 - n;  // so that the last element is -0
          widen(type, all.data() + from, x.data(), n);
          CHECK(difference(x.span(), std::span<const float>(wide).subspan(from, n)) == "");
          CHECK((h.intact() && x.intact()));
        }
      });
    }
  }

  TEST_CASE("all floats narrow as single elements do where EXHAUSTIVE=1 asks for it") {
    const std::uint32_t blocks = std::getenv("EXHAUSTIVE") ? 4096 : 4;  // of 2^20 bit patterns
    std::vector<float> in(1 << 20);
    std::vector<std::uint16_t> out(in.size()), expected(in.size());
    for (std::uint32_t block = 0; block < blocks; ++block)
      for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
        const std::uint32_t first = block * (4096 / blocks) << 20;
        for (std::uint32_t i = 0; i < in.size(); ++i) {
          in[i] = std::bit_cast<float>(first + i);
          expected[i] = narrow1(type, in[i]);
        }
        for_each_target([&](const std::string& target) {
          CAPTURE(target);
          CAPTURE(first);
          narrow(type, in.data(), out.data(), in.size());
          CHECK(difference(out, expected) == "");
        });
      }
  }

  TEST_CASE("adding is one float32 addition per element on every SIMD target") {
    std::vector<float> start(1003);
    for (std::size_t i = 0; i < start.size(); ++i) start[i] = 0.001f * static_cast<float>(i);
    for (const Dtype type : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
      std::vector<float> values(start.size());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = Random(3, 0).uniform(i) - 0.5f;
      std::vector<std::uint8_t> stored(values.size() * size_of(type));
      narrow(type, values.data(), stored.data(), values.size());
      std::vector<float> back(values.size()), expected = start;
      widen(type, stored.data(), back.data(), back.size());
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = start[i] + back[i];
      for_each_target([&](const std::string& target) {
        CAPTURE(target);
        auto got = start;
        add_widened(type, stored.data(), got.data(), got.size());
        CHECK(difference(got, expected) == "");
      });
    }
  }

  TEST_CASE("float64 is rounded to nearest on entry and exact on exit") {
    const double in[] = {1.0, 1 + 0x1p-24, 1 + 0x1.8p-23, -0x1p-149, 0x1p-150, 1e300, -0.0};
    const float expected[] = {1.0f, 1.0f, 1 + 0x1p-22f, -0x1p-149f, 0.0f, kInf, -0.0f};
    float out[7];
    widen(Dtype::f64, in, out, 7);
    CHECK(difference<float>(out, expected) == "");
    double back[7];
    narrow(Dtype::f64, expected, back, 7);
    for (int i = 0; i < 7; ++i) CHECK(back[i] == static_cast<double>(expected[i]));
  }

  TEST_CASE("magnitude finds the largest value wherever it stands") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const Dtype type : kTypes)
        for (const std::size_t count : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 300}) {
          std::vector<float> values(count, 0.25f);
          std::vector<std::uint8_t> stored(count * size_of(type));
          int wrong = 0;
          for (std::size_t at = 0; at < count; ++at)
            for (const float x : {-3.0f, 3.5f, kNaN, -kNaN, kInf, -kInf}) {
              values[at] = x;
              narrow(type, values.data(), stored.data(), count);
              const double got = magnitude(type, stored.data(), count);
              wrong += got != (std::isfinite(x) ? std::fabs(static_cast<double>(x)) : HUGE_VAL);
              values[at] = 0.25f;
            }
          CAPTURE(std::string(name_of(type)));
          CAPTURE(count);
          CHECK(wrong == 0);
        }
    });
  }

  TEST_CASE("magnitude of nothing and of zeros is 0 and subnormals count") {
    for (const Dtype type : kTypes) {
      const std::vector<float> zeros{-0.0f, 0.0f, -0.0f};
      std::vector<std::uint8_t> stored(24);
      narrow(type, zeros.data(), stored.data(), 3);
      CHECK(magnitude(type, stored.data(), 3) == 0.0);
      CHECK_FALSE(std::signbit(magnitude(type, stored.data(), 3)));
      CHECK(magnitude(type, stored.data(), 0) == 0.0);
    }
    const float tiny[] = {0.0f, -0x1p-149f};
    CHECK(magnitude(Dtype::f32, tiny, 2) == 0x1p-149);
    const double large[] = {1e300, -2e300, 1};
    CHECK(magnitude(Dtype::f64, large, 3) == 2e300);
    const std::uint16_t half[] = {0x8001};
    CHECK(magnitude(Dtype::f16, half, 1) == 0x1p-24);
  }
}
