#include "schedule/layout.hpp"
#include "schedule/layout_cache.hpp"

#include <doctest/doctest.h>

#include <set>
#include <utility>
#include <vector>

using namespace crimp;

TEST_SUITE("layout") {
  TEST_CASE("an unknown layout is one keyless segment") {
    const Layout layout = *Layout::unknown(77);
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
    CHECK(Layout(base.source, base.segments) == base);
    const auto differs = [&](auto change) {
      auto source = base.source;
      auto segments = base.segments;
      change(source, segments);
      const Layout other(source, segments);
      CHECK_FALSE(other == base);
      return digests.insert(other.digest()).second;
    };
    CHECK(differs([](auto& source, auto&) { source = Layout::Source::periodic; }));
    CHECK(differs([](auto&, auto& segments) { segments[0].key = "c"; }));
    CHECK(differs([](auto&, auto& segments) { segments[1].count = 21; }));
    CHECK(differs([](auto&, auto& segments) { segments[1].offset = 11; }));
    CHECK(differs([](auto&, auto& segments) { segments.pop_back(); }));
    CHECK(differs([](auto&, auto& segments) { std::swap(segments[0].key, segments[1].key); }));
    CHECK(Layout::unknown(5)->digest() != Layout::unknown(6)->digest());
  }

  TEST_CASE("runs of summed neighbours, stretch by stretch") {
    using enum Segment::Use;
    const Layout layout{
        Layout::Source::named,
        {{"a", 0, 10, sum}, {"b", 10, 5, sum}, {"pad", 15, 5, skip}, {"c", 20, 30, sum}, {"end", 50, 4, skip}}};
    using Runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    const auto runs = [&](const std::vector<std::uint64_t>& borders) {
      Runs found;
      SummedRuns all(layout);
      for (std::size_t i = 1; i < borders.size(); ++i)
        all.each(borders[i - 1], borders[i],
                 [&](std::uint64_t from, std::uint64_t to) { found.emplace_back(from, to); });
      return found;
    };
    CHECK(runs({0, 54}) == Runs{{0, 15}, {20, 50}});
    CHECK(runs({0, 12, 17, 40, 54}) == Runs{{0, 12}, {12, 15}, {20, 40}, {40, 50}});
    CHECK(runs({0, 10, 15, 20, 50, 54}) == Runs{{0, 10}, {10, 15}, {20, 50}});
    CHECK(runs({12, 25}) == Runs{{12, 15}, {20, 25}});
    CHECK(runs({16, 19}) == Runs{});
  }

  TEST_CASE("the same tensors have the layout that they had before") {
    LayoutCache cache;
    using Tensors = std::vector<LayoutCache::Tensor>;
    const Tensors tensors{{"a", 10}, {"none", 0}, {"b", 20}};
    CHECK(cache.find(tensors) == nullptr);
    const auto layout = Layout::make(Layout::Source::named, {{"a", 0, 10}, {"b", 10, 20}});
    cache.put(tensors, layout);
    const std::string other_a = "a";  // names are compared, not pointers
    CHECK(cache.find(Tensors{{other_a.c_str(), 10}, {"none", 0}, {"b", 20}}) == layout);
    for (const Tensors& different :
         {Tensors{{"a", 10}, {"b", 20}}, Tensors{{"a", 20}, {"none", 0}, {"b", 10}},
          Tensors{{"b", 10}, {"none", 0}, {"a", 20}}, Tensors{{"a", 10}, {"none", 0}, {"c", 20}},
          Tensors{{"a", 10}, {"none", 0}}, Tensors{}})
      CHECK(cache.find(different) == nullptr);
    for (std::uint64_t i = 0; i < 2 * LayoutCache::kMost; ++i)
      cache.put(Tensors{{"a", i + 100}}, Layout::make(Layout::Source::named, {{"a", 0, i + 100}}));
    std::size_t kept = 0;  // no more than kMost
    for (std::uint64_t i = 0; i < 2 * LayoutCache::kMost; ++i) kept += cache.find(Tensors{{"a", i + 100}}) != nullptr;
    CHECK(kept + (cache.find(tensors) != nullptr) == LayoutCache::kMost);
    const auto last = cache.find(Tensors{{"a", 2 * LayoutCache::kMost + 99}});
    REQUIRE(last != nullptr);
    CHECK(last->segments[0].count == 2 * LayoutCache::kMost + 99);
  }
}
