// Residuals in a byte an element: by the definition in the header, element by element, on every SIMD target; nothing is
// lost on average.
#include "codec/byte_residual.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "codec/coding/dither.hpp"
#include "core/random.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("byte_residual") {
  namespace {

  std::vector<float> values_of(std::uint64_t count, float size = 1.0f) {
    const Random random(7, 3);
    std::vector<float> out(count);
    for (std::uint64_t i = 0; i < count; ++i) out[i] = size * random.normal(i);
    return out;
  }

  std::vector<std::byte> rounded(const std::vector<float>& values, const RandomCounter& counter) {
    std::vector<std::byte> out(byte_residual::bytes(values.size()));
    byte_residual::round(values.data(), values.size(), counter, out.data());
    return out;
  }

  // As the header says it.
  std::vector<std::byte> by_definition(const std::vector<float>& values, const RandomCounter& counter) {
    const std::uint64_t n = values.size(), blocks = (n + 255) / 256;
    std::vector<std::byte> out(4 * blocks + (n + 3) / 4 * 4);
    for (std::uint64_t b = 0; b < blocks; ++b) {
      float largest = 0;
      for (std::uint64_t i = 256 * b; i < std::min(n, 256 * b + 256); ++i)
        largest = std::max(largest, std::abs(values[i]));
      const float scale = largest < 0x1p-100f ? 0.0f : largest / 127.0f;
      std::memcpy(out.data() + 4 * b, &scale, 4);
      for (std::uint64_t i = 256 * b; i < std::min(n, 256 * b + 256) && scale > 0; ++i) {
        RandomCounter at = counter;
        at.element += i / 1048576 * 1048576;
        const float chance =
            static_cast<float>(dither::bits16(at, 0x42595400, static_cast<std::uint32_t>(i % 1048576))) / 65536.0f +
            0.5f / 65536.0f;
        const float up = std::floor(values[i] * (127.0f / largest) + chance);
        out[4 * blocks + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(up, -127.0f, 127.0f)));
      }
    }
    return out;
  }

  }  // namespace

  TEST_CASE("threads share the blocks, and nothing depends on them") {
    for (const std::uint64_t n : {1u, 65536u, 65537u, 300001u, (1u << 20) + 700u}) {
      const auto values = values_of(n);
      const auto alone = rounded(values, {0, 5, 2});
      CHECK((n > 70000 || alone == by_definition(values, {0, 5, 2})));
      std::vector<float> back(n);
      byte_residual::expand(alone.data(), n, back.data());
      for (const int threads : {2, 3}) {
        Workers workers(threads);
        std::vector<std::byte> bytes(byte_residual::bytes(n));
        byte_residual::round(values.data(), n, {0, 5, 2}, bytes.data(), &workers);
        CHECK((bytes == alone));
        std::vector<float> shared(n);
        byte_residual::expand(bytes.data(), n, shared.data(), &workers);
        CHECK((shared == back));
      }
    }
  }

  TEST_CASE("bytes are those of the definition on every target") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const std::uint64_t n : {1, 2, 15, 127, 128, 255, 256, 257, 511, 10240, 100003}) {
        CAPTURE(n);
        std::vector<float> values = values_of(n, n == 511 ? 0x1p40f : 0.001f);
        for (std::uint64_t i = 300; i < std::min<std::uint64_t>(n, 600); ++i) values[i] = 0;  // a block is zeros
        for (const RandomCounter& counter : {RandomCounter{0, 0, 0}, RandomCounter{0xfedcba9876543210, 77, 3}}) {
          const auto bytes = rounded(values, counter);
          CHECK(bytes == by_definition(values, counter));
          std::vector<float> back(n + 1, 7.0f);
          byte_residual::expand(bytes.data(), n, back.data());
          CHECK(back[n] == 7.0f);
          int wrong = 0;
          for (std::uint64_t i = 0; i < n; ++i) {
            float scale;
            std::memcpy(&scale, bytes.data() + i / 256 * 4, 4);
            const auto q = static_cast<std::int8_t>(bytes[(n + 255) / 256 * 4 + i]);
            wrong += back[i] != static_cast<float>(q) * scale;
            wrong += std::abs(back[i] - values[i]) > scale * 1.00001f;  // to a neighbour
          }
          CHECK(wrong == 0);
        }
      }
    });
  }

  TEST_CASE("more than a run of random bits") {
    const std::vector<float> values = values_of((1 << 20) + 300);
    CHECK(rounded(values, {5, 1, 2}) == by_definition(values, {5, 1, 2}));
  }

  TEST_CASE("a byte and a 64th an element") {
    CHECK(byte_residual::bytes(1 << 20) == (1 << 20) + (1 << 14));
    CHECK(byte_residual::bytes(1) == 8);
    CHECK(byte_residual::bytes(257) == 8 + 260);
  }

  TEST_CASE("zeros in what held values before") {
    std::vector<float> values = values_of(700);
    auto bytes = rounded(values, {0, 0, 0});
    std::fill(values.begin(), values.end(), 0.0f);
    byte_residual::round(values.data(), 700, {0, 1, 0}, bytes.data());
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; }));
  }

  // Rounded again and again, what is small beside its block's largest neither vanishes nor grows: the sum of the errors
  // is a random walk, of steps with a variance of at most scale^2 / 4. Rounding to the nearest would have lost all of
  // the small values.
  TEST_CASE("nothing is lost on average") {
    constexpr int kTimes = 4000;
    std::vector<float> values(256, 0.1f / 127.0f);
    values[0] = 1.0f;
    for (int i = 1; i < 256; i += 2) values[static_cast<std::size_t>(i)] *= -1;
    std::vector<double> sum(256);
    std::vector<float> back(256);
    for (std::uint32_t step = 0; step < kTimes; ++step) {
      const auto bytes = rounded(values, {11, step, 0});
      byte_residual::expand(bytes.data(), 256, back.data());
      for (std::size_t i = 0; i < 256; ++i) sum[i] += static_cast<double>(back[i]);
    }
    const double scale = 1.0 / 127, walk = 5 * scale * std::sqrt(kTimes * 0.1 * 0.9);
    for (std::size_t i = 1; i < 256; ++i) CHECK(std::abs(sum[i] - kTimes * static_cast<double>(values[i])) < walk);
    CHECK(sum[0] == doctest::Approx(kTimes));
  }
}
