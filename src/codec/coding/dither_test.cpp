// Random bits of codecs: Random123's Philox, in the order of the format, on every SIMD target.
#include "codec/coding/dither.hpp"

#include <Random123/philox.h>
#include <doctest/doctest.h>

#include "support/dither_tile.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("dither") {
  TEST_CASE("the bits of an element are a half of a word of Philox4x32-7") {
    for (const RandomCounter& counter : {RandomCounter{0, 0, 0}, RandomCounter{10240, 7, 3},
                                         RandomCounter{(std::uint64_t{5} << 32) + 77, 0xffffffffu, 0x80000001u}})
      for (const std::uint32_t i : {0u, 1u, 15u, 16u, 31u, 32u, 127u, 128u, 5000u, 10239u}) {
        const std::uint32_t block = i / 128 * 16 + i % 16, half = i % 128 / 16;
        const auto words =
            r123::Philox4x32_R<7>()({{block, static_cast<std::uint32_t>(counter.element), counter.rank, counter.step}},
                                    {{dither::kRounding, static_cast<std::uint32_t>(counter.element >> 32)}});
        CHECK(dither::bits16(counter, dither::kRounding, i) == (words[half / 2] >> (16 * (half % 2)) & 0xffff));
      }
  }

  TEST_CASE("tiles are the elements' bits on every target") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const RandomCounter& counter :
           {RandomCounter{0, 0, 0}, RandomCounter{(std::uint64_t{5} << 32) + 77, 9, 0x80000001u}})
        for (const std::uint32_t tile : {0u, 1u, 79u}) {
          std::uint32_t bits[128];
          dither_tile(counter, dither::kShared, tile, bits);
          int wrong = 0;
          for (std::uint32_t i = 0; i < 128; ++i)
            wrong += bits[i] != dither::bits16(counter, dither::kShared, tile * 128 + i);
          CHECK(wrong == 0);
        }
    });
  }

  TEST_CASE("bits differ between places, steps, ranks and streams and are even on average") {
    const RandomCounter base{10240, 3, 1};
    int same[4] = {};
    double sum = 0;
    for (std::uint32_t i = 0; i < 10240; ++i) {
      const auto b = dither::bits16(base, dither::kRounding, i);
      sum += b;
      same[0] += b == dither::bits16({20480, 3, 1}, dither::kRounding, i);
      same[1] += b == dither::bits16({10240, 4, 1}, dither::kRounding, i);
      same[2] += b == dither::bits16({10240, 3, 2}, dither::kRounding, i);
      same[3] += b == dither::bits16(base, dither::kShared, i);
    }
    for (const int n : same) CHECK(n < 4);
    CHECK(sum / 10240 == doctest::Approx(32767.5).epsilon(0.02));
  }
}
