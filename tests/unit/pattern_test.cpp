// Shell patterns, against fnmatch() in the C locale, which tests run in.
#include "core/pattern.hpp"

#include <doctest/doctest.h>
#include <fnmatch.h>

#include <clocale>
#include <random>
#include <string>

using namespace crimp;

TEST_SUITE("pattern") {
  TEST_CASE("names of tensors") {
    CHECK(matches("*bias", "layer1.0.bias"));
    CHECK_FALSE(matches("*bias", "bias.weight"));
    CHECK(matches("*bn*", "layer1.bn2.weight"));
    CHECK(matches("", ""));
    CHECK_FALSE(matches("", "a"));
    CHECK(matches("*", ""));
    CHECK(matches("w?", "w1"));
    CHECK_FALSE(matches("w?", "w"));
    CHECK(matches("w[0-4]", "w3"));
    CHECK_FALSE(matches("w[!0-4]", "w3"));
    CHECK(matches("w[[:digit:]_]*", "w_1"));
    CHECK_FALSE(matches("[[:foo:]a]", "a"));  // no class of that name
    CHECK_FALSE(matches("[![:foo:]]", "a"));
    CHECK(matches("w[[:]x[1:]", "w:x1"));
    CHECK(matches("a\\*b", "a*b"));
    CHECK_FALSE(matches("a\\*b", "axb"));
    CHECK(matches("*.weight", std::string(100000, 'x') + ".weight"));
  }

  TEST_CASE("bytes are bytes, whatever the locale is") {
    const std::string umlaut = "w\xc3\xbc";
    CHECK_FALSE(matches("w?", umlaut));
    CHECK(matches("w??", umlaut));
    CHECK(matches("w*", "w\xfc\xff"));  // no UTF-8
    const std::string before = std::setlocale(LC_ALL, nullptr);
    for (const char* locale : {"C.UTF-8", "en_US.UTF-8", "de_DE.UTF-8"}) {
      if (!std::setlocale(LC_ALL, locale)) continue;
      CAPTURE(locale);
      CHECK_FALSE(matches("w?", umlaut));
      CHECK_FALSE(matches("[A-Z]*", "weight"));
    }
    std::setlocale(LC_ALL, before.c_str());
  }

  TEST_CASE("random patterns match what fnmatch() matches") {
    std::mt19937 random(7);
    const auto text = [&](const std::string& of, std::size_t most) {
      std::string out(random() % (most + 1), ' ');
      for (char& c : out) c = of[random() % of.size()];
      return out;
    };
    int matched = 0;
    for (int i = 0; i < 400000; ++i) {
      const std::string pattern = text("aab*?[]!^-\\z.", 8), name = text("aabz-]!.[^\\", 6);
      // What POSIX leaves open, and collating symbols, which are none here.
      if (pattern.find("[.") != pattern.npos || pattern.ends_with('-')) continue;
      const bool expected = ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
      matched += expected;
      CAPTURE(pattern);
      CAPTURE(name);
      REQUIRE(matches(pattern, name) == expected);
    }
    CHECK(matched > 10000);
    for (const char* kind :
         {"alpha", "digit", "alnum", "upper", "lower", "xdigit", "space", "blank", "punct", "graph", "print", "cntrl"})
      for (int c = 1; c < 256; ++c) {
        const std::string pattern = "x[[:" + std::string(kind) + ":]]", name{'x', static_cast<char>(c)};
        CAPTURE(pattern);
        CAPTURE(c);
        CHECK(matches(pattern, name) == (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0));
      }
  }

  // Each star may end anywhere: what goes back to all of them takes for ever.
  TEST_CASE("many stars take no long time") {
    std::string pattern;
    for (int i = 0; i < 200; ++i) pattern += "*a";
    CHECK_FALSE(matches(pattern + "b", std::string(20000, 'a')));  // else the test runs into its limit
  }
}
