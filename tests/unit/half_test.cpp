// One element conversions against their definition in double arithmetic. EXHAUSTIVE=1 checks all 2^32 floats (minutes).
#include "core/half.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "core/random.hpp"
#include "support/half_reference.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("half") {
  namespace {

  struct Functions {
    const SmallFormat& format;
    std::uint16_t (*encode)(float);
    float (*decode)(std::uint16_t);
  };
  const Functions kFormats[] = {{kHalf, half_from_float, float_from_half},
                                {kBfloat, bfloat_from_float, float_from_bfloat}};

  std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

  bool right(const Functions& f, std::uint32_t u) {
    const float x = std::bit_cast<float>(u);
    const std::uint16_t got = f.encode(x);
    if (x == x) return got == f.format.nearest(static_cast<double>(x));
    // NaN stays NaN with its sign, is quiet and keeps the upper payload bits.
    const int drop = 23 - f.format.mantissa_bits;
    const std::uint32_t payload = (u & 0x7fffff) >> drop | 1u << (f.format.mantissa_bits - 1);
    return got == ((u >> 31 ? f.format.sign_bit() : 0) | f.format.infinity() | payload);
  }

  }  // namespace

  TEST_CASE("every 16-bit pattern decodes to its value and encodes to itself") {
    for (const auto& f : kFormats) {
      int wrong = 0;
      for (std::uint32_t i = 0; i < 65536; ++i) {
        const auto h = static_cast<std::uint16_t>(i);
        const float x = f.decode(h);
        if (f.format.is_nan(h)) {
          const auto quiet = static_cast<std::uint16_t>(h | 1u << (f.format.mantissa_bits - 1));
          wrong += x == x || f.encode(x) != quiet || (bits(x) >> 31) != (h >> 15);
        } else {
          wrong += bits(x) != bits(static_cast<float>(f.format.value(h))) || f.encode(x) != h;
        }
      }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("a 16-bit value and its neighbours and midpoints round as defined") {
    for (const auto& f : kFormats) {
      int wrong = 0;
      for (std::uint32_t i = 0; i < f.format.infinity(); ++i) {
        const double low = f.format.value(static_cast<std::uint16_t>(i));
        // Above the largest finite value stands what would be the next one.
        const double high = i + 1u < f.format.infinity() ? f.format.value(static_cast<std::uint16_t>(i + 1))
                                                         : 2 * low - f.format.value(static_cast<std::uint16_t>(i - 1));
        for (const double x : {low, high, (low + high) / 2}) {
          const std::uint32_t u = bits(static_cast<float>(x));
          for (const std::uint32_t v : {u - 1, u, u + 1})
            if (v <= 0x7f800000) wrong += !right(f, v) + !right(f, v | 0x80000000u);
        }
      }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("known values") {
    CHECK(half_from_float(1.0f) == 0x3c00);
    CHECK(half_from_float(65504.0f) == 0x7bff);
    CHECK(half_from_float(65519.996f) == 0x7bff);
    CHECK(half_from_float(65520.0f) == 0x7c00);
    CHECK(half_from_float(0x1p-24f) == 0x0001);
    CHECK(half_from_float(0x1p-25f) == 0x0000);
    CHECK(half_from_float(-0x1.8p-25f) == 0x8001);
    CHECK(half_from_float(-0.0f) == 0x8000);
    CHECK(bfloat_from_float(0x1.01p0f) == 0x3f80);
    CHECK(bfloat_from_float(0x1.03p0f) == 0x3f82);
    CHECK(bfloat_from_float(0x1.fffffep127f) == 0x7f80);
    CHECK(float_from_half(0x0001) == 0x1p-24f);
  }

  TEST_CASE("a dense sample of all floats, or all of them") {
    const bool all = std::getenv("EXHAUSTIVE") != nullptr;
    const Random random(1, 0);
    for (const auto& f : kFormats) {
      std::uint64_t wrong = 0;
      if (all) {
        for (std::uint64_t u = 0; u < (std::uint64_t{1} << 32); ++u) wrong += !right(f, static_cast<std::uint32_t>(u));
      } else {
        for (std::uint32_t e = 0; e < 512; ++e)  // sign and exponent, each with ends and 2000 random mantissas
          for (std::uint32_t k = 0; k < 2000; ++k)
            wrong += !right(f, e << 23 | (k == 0 ? 0 : k == 1 ? 0x7fffff : random.bits(e * 2000 + k) & 0x7fffff));
      }
      CHECK(wrong == 0);
    }
  }
}
