#include "codec/coding/zero_run.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "codec/threelc/threelc_reference.hpp"
#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/simd_targets.hpp"

using namespace crimp::threelc;
using namespace crimp::test;

TEST_SUITE("zero_run") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

  Bytes encode(const Bytes& base) {
    // Room as documented, filled with what is no zero, so that what was not written shows.
    Guarded<std::uint8_t> out(base.size() + 64);
    const Bytes exact(base);
    const std::size_t n = zero_run_encode(exact.data(), exact.size(), out.data());
    if (!out.intact()) return {};
    return {out.data(), out.data() + n};
  }

  // Empty where the code is refused.
  Bytes decode(const Bytes& coded, std::size_t n) {
    Guarded<std::uint8_t> base(n + kExpansionSlack);
    const Bytes exact(coded);
    const bool good = zero_run_decode(exact.data(), exact.size(), base.data(), n);
    if (!base.intact() || !good) return {};
    return {base.data(), base.data() + n};
  }

  std::string wrong(const Bytes& base) {
    const Bytes coded = encode(base);
    std::string what = difference(coded, threelc_run_coded(base));
    if (what.empty()) what = difference(decode(coded, base.size()), base);
    return what;
  }

  }  // namespace

  TEST_CASE("every run of 0 to 300 zero bytes at every offset of a word") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (std::size_t offset = 0; offset < 64; ++offset)
        for (std::size_t run = 0; run <= 300; ++run)
          for (const std::size_t behind : {0, 1, 70}) {
            if (behind == 70 && run % 7 != offset % 7) continue;  // a seventh of them, for time
            Bytes base(offset, 7);
            base.insert(base.end(), run, 121);
            base.insert(base.end(), behind, 200);
            const std::string what = wrong(base);
            if (what.empty()) continue;
            CAPTURE(offset);
            CAPTURE(run);
            CAPTURE(behind);
            FAIL_CHECK(what);
          }
    });
  }

  TEST_CASE("the codes of short runs") {
    CHECK(encode(Bytes(0)) == Bytes{});
    CHECK(encode(Bytes(1, 121)) == Bytes{121});
    CHECK(encode(Bytes(2, 121)) == Bytes{243});
    CHECK(encode(Bytes(13, 121)) == Bytes{254});
    CHECK(encode(Bytes(14, 121)) == Bytes{255});
    CHECK(encode(Bytes(15, 121)) == Bytes{255, 121});
    CHECK(encode(Bytes(16, 121)) == Bytes{255, 243});
    CHECK(encode(Bytes(28, 121)) == Bytes{255, 255});
    CHECK(encode(Bytes(29, 121)) == Bytes{255, 255, 121});
    CHECK(encode({121, 120, 121, 121, 122}) == Bytes{121, 120, 243, 122});
  }

  TEST_CASE("random bytes of every zero density") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (std::uint64_t seed = 0; seed < 400; ++seed) {
        const crimp::Random random(seed, 0);
        const std::uint32_t rarity = 1u << seed % 12;  // a literal in so many bytes
        Bytes base(1 + random.bits(0) % 2048);
        for (std::size_t i = 0; i < base.size(); ++i) {
          const std::uint32_t r = random.bits(i + 1);
          base[i] = r % rarity == 0 ? static_cast<std::uint8_t>((r >> 12) % 243) : std::uint8_t{121};
        }
        const std::string what = wrong(base);
        if (what.empty()) continue;
        CAPTURE(seed);
        FAIL_CHECK(what);
      }
    });
  }

  TEST_CASE("any code with the right expansion is accepted and no other") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      CHECK(decode({243, 121, 243}, 5) == Bytes(5, 121));
      CHECK(decode({121, 121, 121}, 3) == Bytes(3, 121));
      CHECK(decode({255}, 13).empty());
      CHECK(decode({255}, 15).empty());
      CHECK(decode({}, 1).empty());
      for (std::uint64_t seed = 0; seed < 300; ++seed) {
        const crimp::Random random(seed, 1);
        Bytes coded(1 + random.bits(0) % 300);
        for (std::size_t i = 0; i < coded.size(); ++i)
          coded[i] = static_cast<std::uint8_t>(seed % 3 == 0   ? random.bits(i + 1)
                                               : seed % 3 == 1 ? 236 + random.bits(i + 1) % 20
                                                               : 255);
        std::size_t n = 0;
        for (const std::uint8_t b : coded) n += b > 242 ? b - 241u : 1u;
        CAPTURE(seed);
        CHECK(difference(decode(coded, n), *threelc_expanded(coded, n)) == "");
        for (const std::size_t other : {n - 1, n + 1, n / 2, 2 * n, std::size_t{0}})
          CHECK(decode(coded, other).empty());
      }
    });
  }

  TEST_CASE("any bytes come back and the code is never longer") {
    // Runs and literals of any lengths; on failure RapidCheck prints the seed and the smallest case.
    const bool good =
        rc::check("zero runs round trip", [](const std::vector<std::pair<std::uint16_t, std::uint8_t>>& parts) {
          Bytes base;
          for (const auto& [run, literal] : parts) {
            base.insert(base.end(), run % 100u, 121);
            base.push_back(static_cast<std::uint8_t>(literal % 243));
          }
          const Bytes coded = encode(base);
          RC_ASSERT(coded == threelc_run_coded(base));
          RC_ASSERT(coded.size() <= base.size());
          RC_ASSERT(decode(coded, base.size()) == base);
        });
    CHECK(good);
  }
}
