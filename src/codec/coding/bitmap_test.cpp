// Bitmaps against a loop over their bits, on every SIMD target.
#include "codec/coding/bitmap.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <random>
#include <vector>

#include "support/compare.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("bitmap") {
  TEST_CASE("counted, and values added to what it selects and to nothing else") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const std::uint64_t n : {1u, 7u, 8u, 15u, 16u, 17u, 31u, 64u, 129u, 10239u, 10240u})
        for (const std::uint64_t of_64 : {0u, 1u, 8u, 32u, 63u, 64u}) {
          CAPTURE(n);
          CAPTURE(of_64);
          std::vector<std::uint8_t> bits((n + 7) / 8);
          // Not selected: -0 and a NaN that signals, which an addition of zero would change. Behind n: of another
          // tensor.
          std::vector<float> acc(n + 40, -0.0f), values;
          for (std::size_t i = 5; i < acc.size(); i += 11) acc[i] = std::bit_cast<float>(0x7fa00001u);
          std::vector<float> wanted = acc;
          std::mt19937 random(n);
          for (std::uint64_t i = 0; i < n; ++i) {
            if (random() % 64 >= of_64) continue;
            bits[i / 8] |= static_cast<std::uint8_t>(1u << i % 8);
            values.push_back(static_cast<float>(i) - 0.5f);
            acc[i] = wanted[i] = static_cast<float>(i % 7);
            wanted[i] += values.back();
          }
          CHECK(bitmap::count(bits.data(), bits.size()) == values.size());
          values.resize(values.size() + bitmap::kRoom, 1e30f);
          bitmap::add(bits.data(), n, values.data(), acc.data());
          CHECK(difference(acc, wanted) == "");
        }
    });
  }
}
