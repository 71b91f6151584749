#include "core/random.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace crimp;

TEST_SUITE("random") {
  namespace {

  // Philox4x32-10 written from the paper (Salmon et al., SC'11, section 3.3).
  struct Words {
    std::uint32_t w[4];
  };
  Words philox(Words c, std::uint32_t k0, std::uint32_t k1) {
    for (int round = 0; round < 10; ++round, k0 += 0x9e3779b9, k1 += 0xbb67ae85) {
      const std::uint64_t a = std::uint64_t{0xd2511f53} * c.w[0], b = std::uint64_t{0xcd9e8d57} * c.w[2];
      c = {{static_cast<std::uint32_t>(b >> 32) ^ c.w[1] ^ k0, static_cast<std::uint32_t>(b),
            static_cast<std::uint32_t>(a >> 32) ^ c.w[3] ^ k1, static_cast<std::uint32_t>(a)}};
    }
    return c;
  }

  struct Known {
    Words counter;
    std::uint32_t key[2];
    Words answer;
  };
  // philox4x32-10 of Random123's kat_vectors.
  const Known kKnown[] = {
      {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xa4093822, 0x299f31d0},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };

  }  // namespace

  TEST_CASE("philox gives the published answers") {
    for (const auto& k : kKnown) {
      const r123::Philox4x32::ctr_type library = r123::Philox4x32()(
          {{k.counter.w[0], k.counter.w[1], k.counter.w[2], k.counter.w[3]}}, {{k.key[0], k.key[1]}});
      const Words own = philox(k.counter, k.key[0], k.key[1]);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(library[i] == k.answer.w[i]);
        CHECK(own.w[i] == k.answer.w[i]);
      }
    }
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(Random(0, 0).bits(i) == kKnown[0].answer.w[i]);
  }

  TEST_CASE("seed is the key and the counter is (index / 4, stream, step)") {
    const std::uint64_t seed = 0x299f31d0a4093822;
    const std::uint32_t stream = 0x13198a2e, step = 0x03707344;
    const Random random(seed, stream, step);
    for (const std::uint64_t counter :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x243f6a88}, std::uint64_t{0x05a308d3243f6a88}}) {
      const Words expected =
          philox({{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), stream, step}},
                 0xa4093822, 0x299f31d0);
      for (std::uint64_t i = 0; i < 4; ++i) CHECK(random.bits(4 * counter + i) == expected.w[i]);
    }
  }

  TEST_CASE("uniform is in the half-open unit interval and normal has mean 0 and variance 1") {
    const Random random(5, 1);
    double sum = 0, squares = 0, uniform = 0;
    const int n = 100000;
    for (int i = 0; i < n; ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      const float u = random.uniform(index), z = random.normal(index);
      REQUIRE((u >= 0.0f && u < 1.0f));
      REQUIRE(std::isfinite(z));
      uniform += static_cast<double>(u);
      sum += static_cast<double>(z);
      squares += static_cast<double>(z) * static_cast<double>(z);
    }
    CHECK(uniform / n == doctest::Approx(0.5).epsilon(0.01));
    CHECK(std::fabs(sum / n) < 0.015);
    CHECK(squares / n == doctest::Approx(1.0).epsilon(0.02));
  }
}
