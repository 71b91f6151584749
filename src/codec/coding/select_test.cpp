// The selection primitives against sorting, on every SIMD target.
#include "codec/coding/select.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;
using select::Side;

TEST_SUITE("select") {
  namespace {

  float key_of(float a, Side side) {
    return side == Side::magnitude ? std::fabs(a) : side == Side::positive ? std::fmax(a, 0.0f) : std::fmax(-a, 0.0f);
  }

  // Empty where the threshold selects the k largest keys, equal ones by index.
  std::string wrong(const std::vector<float>& a, std::uint64_t k, Side side, const select::Threshold& threshold) {
    std::vector<float> sorted;
    for (const float x : a) sorted.push_back(key_of(x, side));
    std::vector<float> keys = sorted;
    std::nth_element(sorted.begin(),
                     sorted.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(k, a.size()) - 1),
                     sorted.end(), std::greater<>());
    const float kth = k >= a.size() ? 0.0f : sorted[k - 1];
    if (threshold.value != kth) return "the threshold is " + text_of(threshold.value) + ", expected " + text_of(kth);
    if (kth == 0.0f) return threshold.ties == 0 ? "" : "zeros are selected";
    std::uint64_t above = 0, ties = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      above += keys[i] > kth;
      ties += keys[i] == kth && i < threshold.ties;
    }
    return above + ties == k
               ? ""
               : std::to_string(above) + " + " + std::to_string(ties) + " are selected, expected " + std::to_string(k);
  }

  void check(const std::vector<float>& a, const char* what) {
    std::vector<float> half = a, sum(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      half[i] *= 0.5f;
      sum[i] = half[i] + half[i];
    }
    std::vector<std::uint64_t> ks{1,        2,           a.size() / 1000, a.size() / 100, a.size() / 2, a.size() - 1,
                                  a.size(), a.size() + 5};
    for (const std::uint64_t k : ks) {
      if (k == 0) continue;
      for (const Side side : {Side::magnitude, Side::positive, Side::negative}) {
        CAPTURE(what);
        CAPTURE(a.size());
        CAPTURE(k);
        CAPTURE(static_cast<int>(side));
        CHECK(wrong(a, k, side, select::largest(a.data(), nullptr, a.size(), k, side)) == "");
      }
      CHECK(wrong(sum, k, Side::magnitude, select::largest(half.data(), half.data(), a.size(), k, Side::magnitude)) ==
            "");
    }
  }

  }  // namespace

  TEST_CASE("the k largest of all data on every target") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const Data data : kAllData)
        for (const std::size_t count : {1, 2, 17, 1024, 1025, 5000, 70001})
          check(make_data(data, count, count), name_of(data).c_str());
    });
  }

  TEST_CASE("inputs that mislead samples") {
    const std::size_t n = 300000;
    const Random random(5, 0);
    std::vector<float> a(n);
    const auto fill = [&](const char* what, auto&& value) {
      for (std::size_t i = 0; i < n; ++i) a[i] = value(i);
      check(a, what);
    };
    const std::size_t sampled = n / 128;
    std::vector<bool> seen(n);
    for (std::size_t j = 0; j < sampled; ++j) seen[j * n / sampled] = true;
    fill("the sample is all that is large", [&](std::size_t i) {
      return seen[i] ? 1e6f + static_cast<float>(i) : static_cast<float>(random.bits(i) % 1000) * 1e-3f;
    });
    fill("the sample is all that is small",
         [&](std::size_t i) { return seen[i] ? 1e-6f : 1.0f + static_cast<float>(random.bits(i)) * 0x1p-32f; });
    fill("rising", [&](std::size_t i) { return static_cast<float>(i) - 1000.0f; });
    fill("falling", [&](std::size_t i) { return -static_cast<float>(n - i); });
    fill("three values", [&](std::size_t i) { return static_cast<float>(random.bits(i) % 3) - 1.0f; });
    fill("one is different", [&](std::size_t i) { return i == 77777 ? 2.0f : 1.0f; });
    fill("one is not zero", [&](std::size_t i) { return i == 77777 ? -2.0f : 0.0f; });
    fill("all exponents",
         [&](std::size_t i) { return std::ldexp(1.0f, static_cast<int>(random.bits(i) % 220) - 120); });
    fill("neighbouring floats",
         [&](std::size_t i) { return 1.0f + static_cast<float>(random.bits(i) % 64) * 0x1p-23f; });
  }

  TEST_CASE("more candidates than are kept") {
    const std::size_t n = std::size_t{1} << 20;
    const Random random(6, 0);
    std::vector<float> a(n);
    for (std::size_t i = 0; i < n; ++i)
      a[i] = i % 3 ? 1.0f + static_cast<float>(random.bits(i) % 4) * 0x1p-23f : random.uniform(i);
    check(a, "two thirds in four values");
  }

  TEST_CASE("counts above a threshold") {
    const std::vector<float> a{-3.0f, -1.0f, -0.0f, 0.0f, 1.0f, 1.0f, 2.0f, 0x1p-149f};
    const auto count = [&](float t, Side side) { return select::count_above(a.data(), nullptr, a.size(), t, side); };
    CHECK(count(0.0f, Side::magnitude) == 6);
    CHECK(count(0.0f, Side::positive) == 4);
    CHECK(count(0.0f, Side::negative) == 2);
    CHECK(count(1.0f, Side::magnitude) == 2);
    CHECK(count(HUGE_VALF, Side::magnitude) == 0);
  }

  TEST_CASE("no elements asked for: none selected; k = count: all that are not zero") {
    const std::vector<float> a{1.0f, -0.0f, -2.0f, 0.0f};
    CHECK(select::largest(a.data(), nullptr, 4, 0, Side::magnitude).value == HUGE_VALF);
    for (const std::uint64_t k : {3, 4, 5}) {
      const auto threshold = select::largest(a.data(), nullptr, 4, k, Side::magnitude);
      CHECK(threshold.value == 0.0f);
      CHECK(threshold.ties == 0);
    }
  }

  TEST_CASE("picked are exactly the elements beyond the limits and the first ties") {
    const std::size_t n = 1000;
    const Random random(7, 0);
    std::vector<float> values(n), memory(n);
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = static_cast<float>(random.bits(i) % 9) - 4.0f;
      memory[i] = static_cast<float>(random.bits(i + n) % 3) - 1.0f;
    }
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (std::uint64_t round = 0; round < 200; ++round) {
        CAPTURE(round);
        const std::uint64_t in_group = round % 2 ? 10240 : 0, count = 1 + random.bits(round + 5000) % n;
        const auto limit = [&](std::uint64_t salt) {
          return in_group + random.bits(round + salt) % 1100 - (round % 5 == 0 && in_group ? 200 : 0);
        };
        const Selection s{static_cast<float>(round % 4), static_cast<float>(round / 4 % 4), limit(6000),
                          round % 3 ? limit(7000) : limit(6000)};
        const bool with_memory = round % 3 != 1;
        Guarded<float> out(count);
        select::Picked picked;
        select::pick({values.data(), with_memory ? memory.data() : nullptr, out.data(), count, {}, s, in_group},
                     picked);
        CHECK(out.intact());
        std::vector<float> expected, rest, got(picked.values, picked.values + picked.count);
        std::vector<std::uint32_t> at, got_at;
        for (std::uint32_t i = 0; i < count; ++i) {
          const float a = with_memory ? values[i] + memory[i] : values[i];
          const bool take = a > s.up || a < -s.down || (a > 0 && a == s.up && in_group + i < s.up_ties) ||
                            (a < 0 && a == -s.down && in_group + i < s.down_ties);
          rest.push_back(take ? 0.0f : a);
          if (take) expected.push_back(a), at.push_back(i);
        }
        picked.each([&](std::uint32_t, std::uint32_t i) { got_at.push_back(i); });
        CHECK(difference(got, expected) == "");
        CHECK(got_at == at);
        CHECK(difference(out.span(), std::span<const float>(rest)) == "");
      }
    });
  }
}
