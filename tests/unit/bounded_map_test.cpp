#include "core/bounded_map.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace crimp;

TEST_SUITE("bounded_map") {
  TEST_CASE("it holds what was put, at most so many, and another one takes the place of one of them") {
    BoundedMap<int, std::string> map(3);
    CHECK(map.find(1) == nullptr);
    for (const int key : {1, 2, 3}) map.put(key, std::to_string(key));
    const std::string* const two = map.find(2);
    map.put(2, "two");
    CHECK(map.size() == 3);
    CHECK(map.find(2) == two);
    CHECK(*two == "two");
    map.put(4, "4");
    CHECK(map.size() == 3);
    CHECK(*map.find(4) == "4");
    CHECK((map.find(1) != nullptr) + (map.find(2) != nullptr) + (map.find(3) != nullptr) == 2);
    map.erase(4);
    map.erase(4);
    CHECK(map.size() == 2);
    CHECK(map.find(4) == nullptr);
    map.evict();
    std::set<std::string> left;
    map.for_each([&](const std::string& value) { left.insert(value); });
    CHECK(left.size() == 1);
    map.clear();
    CHECK(map.size() == 0);
    map.put(5, "5");
    CHECK(*map.find(5) == "5");
  }

  TEST_CASE("of a cycle that is a little longer than it most are found, and all that were put lately go in time") {
    constexpr int kMost = 1000;
    for (const int cycle : {kMost, kMost + 1, kMost + kMost / 10}) {
      CAPTURE(cycle);
      BoundedMap<int, int> map(kMost);
      int found = 0;
      for (int step = 0; step < 20; ++step)
        for (int key = 0; key < cycle; ++key) {
          if (map.find(key)) found += step > 0;
          else map.put(key, step);
        }
      // Forgetting the oldest one, or all: none, or a tenth.
      CHECK(found >= 19 * cycle * 3 / 4);
      if (cycle == kMost) CHECK(found == 19 * cycle);
      for (int key = cycle; key < cycle + 8 * kMost; ++key) map.put(key, 0);
      int old = 0;
      for (int key = 0; key < cycle; ++key) old += map.find(key) != nullptr;
      CHECK(old < 10);
    }
  }

  TEST_CASE("the same calls leave the same entries") {
    BoundedMap<int, int> a(50), b(50);
    for (int i = 0; i < 1000; ++i) {
      a.put(i * i % 211, i);
      b.put(i * i % 211, i);
      if (i % 7 == 0) a.erase(i), b.erase(i);
    }
    for (int key = 0; key < 211; ++key) CHECK((a.find(key) == nullptr) == (b.find(key) == nullptr));
  }
}
