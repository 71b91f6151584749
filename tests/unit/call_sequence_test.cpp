#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <set>

#include "crimp/layout.hpp"

using namespace crimp;

namespace {

// The key of the call's tensor, empty where unknown.
std::string key(CallSequence& calls, std::uint64_t count, Dtype type = Dtype::f32) {
  const Layout layout = calls.observe(count, type);
  REQUIRE(layout.segments.size() == 1);
  REQUIRE(layout.segments[0].count == count);
  REQUIRE(layout.known() == !layout.segments[0].key.empty());
  return layout.segments[0].key;
}

std::vector<std::uint64_t> model(std::size_t layers) {
  std::vector<std::uint64_t> counts;
  for (std::size_t i = 0; i < layers; ++i) counts.push_back(1000 + 7 * i);
  return counts;
}

// Calls until the first key is given, with the counts repeating.
std::size_t calls_until_known(CallSequence& calls, const std::vector<std::uint64_t>& counts, std::size_t most) {
  for (std::size_t i = 0; i < most; ++i)
    if (!key(calls, counts[i % counts.size()]).empty()) return i;
  return most;
}

}  // namespace

TEST_SUITE("call_sequence") {
  TEST_CASE("a period is proved by three repeats and every call then has its own tensor") {
    for (const std::size_t p : {4, 5, 10, 161}) {
      CallSequence calls(3);
      const auto counts = model(p);
      CHECK(calls_until_known(calls, counts, 100 * p) == 3 * p);
      CHECK(calls.period() == p);
      std::set<std::string> keys;
      std::vector<std::string> first;
      for (std::size_t i = 1; i <= 3 * p; ++i) {
        const std::string k = key(calls, counts[i % p]);
        REQUIRE_FALSE(k.empty());
        keys.insert(k);
        if (first.size() < p) first.push_back(k);
        CHECK(k == first[(i - 1) % p]);
      }
      CHECK(keys.size() == p);
      CHECK(calls.refutations() == 0);
    }
  }

  TEST_CASE("a short period needs at least seven matches") {
    CallSequence one(3);
    CHECK(calls_until_known(one, {42}, 100) == 8);
    CallSequence two(3);
    CHECK(calls_until_known(two, {42, 43}, 100) == 9);
  }

  TEST_CASE("three like layers and then another are one period of four") {
    CallSequence calls(3);
    const std::vector<std::uint64_t> counts{64, 64, 64, 1000};
    CHECK(calls_until_known(calls, counts, 1000) == 12);
    CHECK(calls.period() == 4);
    std::set<std::string> keys;
    for (std::size_t i = 13; i < 17; ++i) keys.insert(key(calls, counts[i % 4]));
    CHECK(keys.size() == 4);
  }

  TEST_CASE("many like layers are refuted and then more periods are asked for") {
    CallSequence calls(3);
    std::vector<std::uint64_t> counts(20, 64);
    counts.push_back(1000);
    std::set<std::string> voided;
    std::uint32_t refutations = 0;
    std::size_t i = 0;
    for (; i < 100 * counts.size() && calls.period() != 21; ++i) {
      const std::string k = key(calls, counts[i % counts.size()]);
      if (!k.empty()) voided.insert(k);
      refutations = std::max(refutations, calls.refutations());
    }
    CHECK(refutations >= 1);
    CHECK(calls.period() == 21);
    // From here on it stays, and no key of a refuted period comes back.
    for (const std::size_t end = i + 10 * counts.size(); i < end; ++i) {
      const std::string k = key(calls, counts[i % counts.size()]);
      REQUIRE_FALSE(k.empty());
      CHECK_FALSE(voided.contains(k));
    }
    CHECK(calls.refutations() == refutations);
  }

  TEST_CASE("another call ends a period and the next proof needs twice as many") {
    CallSequence calls(3);
    const auto counts = model(10);
    CHECK(calls_until_known(calls, counts, 1000) == 30);
    const std::string before = key(calls, counts[1]);
    CHECK(key(calls, 5) == "");
    CHECK(calls.period() == 0);
    CHECK(calls.refutations() == 1);
    CHECK(calls_until_known(calls, counts, 1000) == 60);
    CHECK(key(calls, counts[1]) != before);
    CHECK(key(calls, counts[2], Dtype::f16) == "");  // a type is part of a call
    CHECK(calls.refutations() == 2);
  }

  TEST_CASE("the longest period is proved and a longer one is not") {
    CallSequence calls(2);
    CHECK(calls_until_known(calls, model(CallSequence::kLongestPeriod), 20000) == 2 * CallSequence::kLongestPeriod);
    CallSequence longer(2);
    CHECK(calls_until_known(longer, model(CallSequence::kLongestPeriod + 1), 20000) == 20000);
  }

  TEST_CASE("a period may begin at any call") {
    CallSequence calls(3);
    for (std::uint64_t i = 0; i < 5000; ++i) CHECK(key(calls, 100000 + i) == "");
    CHECK(calls_until_known(calls, model(10), 1000) == 30);
  }

  TEST_CASE("keys are a pure function of the sequence and never shared by different calls") {
    const bool good = rc::check("two instances agree", [](const std::vector<std::uint8_t>& pattern, std::uint8_t noise) {
      CallSequence a(3), b(3);
      std::map<std::string, std::uint64_t> count_of;
      for (std::size_t i = 0; i < 40 * pattern.size(); ++i) {
        const std::uint64_t count = noise > 1 && i % (noise * 5u) == 0 ? 999 : pattern[i % pattern.size()] % 4u;
        const Layout x = a.observe(count, Dtype::f32), y = b.observe(count, Dtype::f32);
        RC_ASSERT(x.digest() == y.digest());
        RC_ASSERT(x.segments[0].count == count);
        if (x.known()) RC_ASSERT(count_of.emplace(x.segments[0].key, count).first->second == count);
      }
    });
    CHECK(good);
  }
}
