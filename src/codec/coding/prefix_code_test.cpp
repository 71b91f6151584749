// The entropy stage of 3LC.
#include "codec/coding/prefix_code.hpp"

#include <doctest/doctest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "codec/coding/prefix_code_tables.hpp"
#include "codec/threelc/threelc.hpp"
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

  // Per base byte, how often each coded byte appears when values are independent and not zero with probability p.
  // Additions, products and quotients of doubles only, so that every machine makes the same codes.
  std::array<double, 256> frequencies(double p) {
    std::array<double, 256> f{};
    for (int byte = 0; byte < kFirstRun; ++byte) {
      f[static_cast<std::size_t>(byte)] = 1;
      for (int j = 0; j < 5; ++j)
        f[static_cast<std::size_t>(byte)] *= unpack(static_cast<std::uint8_t>(byte), j) == 0 ? 1 - p : p / 2;
    }
    const double zero = f[kZeroByte];
    double longest = 1;
    for (std::uint32_t k = 0; k < kLongestRun; ++k) longest *= zero;
    // A run has k zero bytes with probability zero^k (1 - zero)^2; what is left of it behind whole runs of 14 is one
    // coded byte.
    double power = 1;
    for (std::uint32_t rest = 1; rest < kLongestRun; ++rest) {
      power *= zero;
      f[rest == 1 ? kZeroByte : kFirstRun + rest - 2] = (1 - zero) * (1 - zero) * power / (1 - longest);
    }
    f[255] = (1 - zero) * longest / (1 - longest);
    return f;
  }

  // Lengths of the best prefix code of at most kLongestCode bits: package-merge (Larmore and Hirschberg, 1990) over
  // integers, ties in the order of the symbols.
  void best_lengths(const std::array<std::uint64_t, 256>& weights, std::uint8_t* lengths) {
    struct Package {
      std::uint64_t weight;
      std::vector<std::uint8_t> symbols;
    };
    std::vector<Package> leaves;
    for (unsigned s = 0; s < 256; ++s) leaves.push_back({weights[s], {static_cast<std::uint8_t>(s)}});
    const auto lighter = [](const Package& a, const Package& b) { return a.weight < b.weight; };
    std::stable_sort(leaves.begin(), leaves.end(), lighter);
    std::vector<Package> level = leaves;
    for (int bit = 1; bit < kLongestCode; ++bit) {
      std::vector<Package> pairs;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
        Package both = level[i];
        both.weight += level[i + 1].weight;
        both.symbols.insert(both.symbols.end(), level[i + 1].symbols.begin(), level[i + 1].symbols.end());
        pairs.push_back(std::move(both));
      }
      std::vector<Package> merged;
      std::merge(leaves.begin(), leaves.end(), pairs.begin(), pairs.end(), std::back_inserter(merged), lighter);
      level = std::move(merged);
    }
    std::fill(lengths, lengths + 256, std::uint8_t{0});
    for (std::size_t i = 0; i < 2 * 255; ++i)
      for (const std::uint8_t s : level[i].symbols) ++lengths[s];
  }

  constexpr double kProbability[kDensities] = {0.002, 0.005, 0.01,  0.02, 0.03, 0.045, 0.065, 0.09,
                                               0.12,  0.155, 0.195, 0.24, 0.3,  0.38,  0.5,   0.66};

  }  // namespace

  TEST_CASE("codes are those of independent values") {
    for (int d = 0; d < kDensities; ++d) {
      const auto f = frequencies(kProbability[d]);
      double fill = 0;
      std::array<std::uint64_t, 256> weights;
      for (std::size_t s = 0; s < 256; ++s) {
        fill += f[s];
        weights[s] =
            static_cast<std::uint64_t>(f[s] * 0x1p40) + 0x100000;  // a millionth more, so that every byte has a code
      }
      CHECK(fill == kPrefixFill[d]);
      std::uint8_t lengths[256];
      best_lengths(weights, lengths);
      CHECK(std::memcmp(lengths, prefix_code(d).length, sizeof lengths) == 0);
    }
  }

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

  TEST_CASE("what a table makes longer than base bytes is refused, well formed or not") {
    // 40 bytes of the longest code, 11 bits each, in four streams of 10: a frame of 9 + 4 * 14 bytes.
    const PrefixCode& code = prefix_code(0);
    const auto symbol = static_cast<std::size_t>(std::find(code.length, code.length + 256, 11) - code.length);
    REQUIRE(symbol < 256);
    Bytes frame{0, 40, 0, 14, 0, 14, 0, 14, 0};
    for (int stream = 0; stream < 4; ++stream) {
      Bytes bits(14);
      for (unsigned i = 0; i < 110; ++i)
        bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (code.code[symbol] >> i % 11 & 1) << i % 8);
      frame.insert(frame.end(), bits.begin(), bits.end());
    }
    Bytes symbols;
    CHECK(decode(frame, 65, symbols) == 40);
    CHECK(symbols[39] == symbol);
    CHECK(decode(frame, 64, symbols) == 65);
  }
}
