// The entropy stage of 3LC.
#include "codec/coding/prefix_code.hpp"

#include <doctest/doctest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "codec/threelc/threelc_reference.hpp"
#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;
using namespace crimp::threelc;

TEST_SUITE("prefix_code") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

  // Base bytes of independent values, +1, -1 or 0.
  Bytes base_of(double density, std::uint64_t seed, std::size_t count = 10240) {
    auto a = make_sparse(density, seed, count);
    for (float& x : a) x = x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    return threelc_base_bytes(a, 1.0f);
  }

  Bytes encode(const Bytes& symbols, std::size_t base) {
    Bytes out(symbols.size() + 1);
    out.resize(prefix_encode(symbols.data(), symbols.size(), base, out.data()));
    return out;
  }

  std::size_t decode(const Bytes& in, std::size_t base, Bytes& symbols) {
    symbols.assign(kMostSymbols + 32, 0);
    return prefix_decode(Bytes(in), base, symbols.data());
  }

  }  // namespace

  TEST_CASE("codes are complete, prefix-free and those of the format") {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (int d = 0; d < kDensities; ++d) {
      const PrefixCode& code = prefix_code(d);
      unsigned kraft = 0;
      int clashes = 0;
      for (unsigned a = 0; a < 256; ++a) {
        REQUIRE(code.length[a] >= 1);
        REQUIRE(code.length[a] <= kLongestCode);
        kraft += 1u << (kLongestCode - code.length[a]);
        for (unsigned b = 0; b < a; ++b) {
          const unsigned both = (1u << std::min(code.length[a], code.length[b])) - 1;
          clashes += ((code.code[a] ^ code.code[b]) & both) == 0;
        }
      }
      CHECK(kraft == 1u << kLongestCode);
      CHECK(clashes == 0);
      XXH3_64bits_update(&state, code.length, sizeof code.length);
      XXH3_64bits_update(&state, code.code, sizeof code.code);
    }
    CHECK(XXH3_64bits_digest(&state) == 16377475653832494387u);
  }

  TEST_CASE("what is coded comes back and the size is near the entropy") {
    for (const double density : {0.001, 0.004, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5}) {
      double bits = 0;
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const Bytes base = base_of(density, seed), symbols = threelc_run_coded(base);
        const Bytes coded = encode(symbols, base.size());
        CHECK(difference(coded, threelc_prefix_coded(symbols, base.size())) == "");
        Bytes back;
        CHECK(decode(coded, base.size(), back) == symbols.size());
        back.resize(symbols.size());
        CHECK(back == symbols);
        bits += 8.0 * static_cast<double>(coded.size()) / 10240 / 10;
      }
      const double zero = 1 - density, entropy = -zero * std::log2(zero) - density * std::log2(density / 2);
      CAPTURE(density);
      CAPTURE(bits);
      CAPTURE(entropy);
      // A prefix code spends at least one bit a symbol, the frame nine bytes, and densities lie apart.
      CHECK(bits < 1.06 * entropy + 0.05);
    }
  }

  TEST_CASE("data that no density fits stay as they are, one byte longer") {
    Bytes symbols(2048);
    const Random random(3, 0);
    for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i] = static_cast<std::uint8_t>(random.bits(i));
    const Bytes coded = encode(symbols, 2048);
    CHECK(coded.size() == 2049);
    CHECK(coded[0] == kPlain);
    Bytes back;
    CHECK(decode(coded, 2048, back) == 2048);
    for (std::size_t n : {0, 1, 3, 4, 5, 19, 20, 21}) {
      const Bytes few(n, 121), short_code = encode(few, std::max<std::size_t>(n, 1));
      CHECK(short_code.size() <= n + 1);
      CHECK(decode(short_code, std::max<std::size_t>(n, 1), back) == n);
    }
  }

  TEST_CASE("malformed bytes are refused and change nothing outside") {
    const Random random(5, 0);
    int refused = 0;
    for (std::uint64_t round = 0; round < 4000; ++round) {
      const Bytes base = base_of(0.02 * static_cast<double>(1 + round % 20), round), symbols = threelc_run_coded(base);
      Bytes bad = encode(symbols, base.size());
      if (bad[0] == kPlain) continue;
      switch (round % 4) {
        case 0: bad.resize(random.bits(round) % bad.size()); break;
        case 1: bad.push_back(0); break;
        case 2: bad[1 + random.bits(round) % 8] ^= static_cast<std::uint8_t>(1 + random.bits(round + 1) % 255); break;
        case 3: bad[0] = static_cast<std::uint8_t>(kDensities + random.bits(round) % (255 - kDensities)); break;
      }
      Guarded<std::uint8_t> room(kMostSymbols + 32);
      const Bytes exact(bad);
      refused += prefix_decode(exact, base.size(), room.data()) == base.size() + 1;
      CHECK(room.intact());
    }
    CHECK(refused > 3990 * 95 / 100);
  }
}
