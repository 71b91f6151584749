#include "schedule/layout.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace crimp;

TEST_SUITE("layout") {
  TEST_CASE("an unknown layout is one keyless segment") {
    const Layout layout = Layout::unknown(77);
    CHECK_FALSE(layout.known());
    REQUIRE(layout.segments.size() == 1);
    CHECK(layout.segments[0].key == "");
    CHECK(layout.segments[0].offset == 0);
    CHECK(layout.segments[0].count == 77);
  }

  TEST_CASE("the digest tells layouts apart") {
    const Layout base{Layout::Source::named, {{"a", 0, 10}, {"b", 10, 20}}};
    std::set<std::uint64_t> digests{base.digest()};
    CHECK(Layout(base).digest() == base.digest());
    const auto differs = [&](auto change) {
      Layout other = base;
      change(other);
      return digests.insert(other.digest()).second;
    };
    CHECK(differs([](Layout& l) { l.source = Layout::Source::periodic; }));
    CHECK(differs([](Layout& l) { l.segments[0].key = "c"; }));
    CHECK(differs([](Layout& l) { l.segments[1].count = 21; }));
    CHECK(differs([](Layout& l) { l.segments[1].offset = 11; }));
    CHECK(differs([](Layout& l) { l.segments.pop_back(); }));
    CHECK(differs([](Layout& l) { std::swap(l.segments[0].key, l.segments[1].key); }));
    CHECK(Layout::unknown(5).digest() != Layout::unknown(6).digest());
  }
}
