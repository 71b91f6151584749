#include <doctest/doctest.h>

#include <numeric>

#include "core/error.hpp"
#include "schedule/merge_plan.hpp"

using namespace crimp;

TEST_SUITE("merge_plan") {
  namespace {

  using Groups = std::vector<std::uint32_t>;
  const std::vector<std::uint64_t> kBytes{100, 400, 100, 200, 100, 100};

  Groups groups(const std::string& plan, const std::vector<std::uint64_t>& bytes = kBytes) {
    return MergePlan(plan).groups(bytes);
  }

  }  // namespace

  TEST_CASE("off keeps every tensor apart, all puts them together") {
    CHECK(MergePlan().off());
    CHECK(MergePlan("off").off());
    CHECK(groups("off") == Groups{0, 1, 2, 3, 4, 5});
    CHECK_FALSE(MergePlan("all").off());
    CHECK(groups("all") == Groups{0, 0, 0, 0, 0, 0});
  }

  TEST_CASE("bytes=N ends a group where it has at least N bytes") {
    CHECK(groups("bytes=500") == Groups{0, 0, 1, 1, 1, 1});
    CHECK(groups("bytes=501") == Groups{0, 0, 0, 1, 1, 1});
    CHECK(groups("bytes=1") == Groups{0, 1, 2, 3, 4, 5});
    CHECK(groups("bytes=100") == Groups{0, 1, 2, 3, 4, 5});
    CHECK(groups("bytes=1M") == Groups{0, 0, 0, 0, 0, 0});
    CHECK(groups("bytes=1k", {1024, 1, 1023, 1}) == Groups{0, 1, 1, 2});
  }

  TEST_CASE("y=N makes N groups of about equal bytes") {
    CHECK(groups("y=1") == Groups{0, 0, 0, 0, 0, 0});
    CHECK(groups("y=2") == Groups{0, 0, 1, 1, 1, 1});
    CHECK(groups("y=6") == Groups{0, 1, 2, 3, 4, 5});
    CHECK(groups("y=9") == Groups{0, 1, 2, 3, 4, 5});
    CHECK(groups("y=4", {1, 1, 1, 1, 1, 1, 1, 1}) == Groups{0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(groups("y=3", {1000, 1, 1}) == Groups{0, 1, 2});
    CHECK(groups("y=3", {1, 1, 1000}) == Groups{0, 1, 2});
  }

  TEST_CASE("y=N makes exactly N groups of any sizes, and consecutive ones") {
    std::uint64_t random = 12345;
    for (std::size_t tensors = 1; tensors < 40; ++tensors) {
      std::vector<std::uint64_t> bytes(tensors);
      for (auto& b : bytes) b = (random = random * 6364136223846793005u + 1442695040888963407u) >> 33 & 0xffff;
      for (std::size_t y = 1; y <= tensors; ++y) {
        const Groups g = groups("y=" + std::to_string(y), bytes);
        CAPTURE(tensors);
        CAPTURE(y);
        CHECK(g.front() == 0);
        CHECK(g.back() + 1 == y);
        for (std::size_t i = 1; i < tensors; ++i) CHECK(g[i] - g[i - 1] <= 1);
      }
    }
  }

  TEST_CASE("cuts=i,j,... begins groups at these tensors") {
    CHECK(groups("cuts=2") == Groups{0, 0, 1, 1, 1, 1});
    CHECK(groups("cuts=1,2,5") == Groups{0, 1, 2, 2, 2, 3});
    CHECK(groups("cuts=3,99") == Groups{0, 0, 0, 1, 1, 1});
  }

  TEST_CASE("no tensors, no groups") {
    for (const char* plan : {"off", "all", "bytes=4k", "y=2", "cuts=1"}) CHECK(groups(plan, {}).empty());
  }

  TEST_CASE("what is no plan is refused, with the legal ones") {
    for (const char* text :
         {"", "none", "ALL", "all=1", "bytes", "bytes=", "bytes=0", "bytes=-1", "bytes=1q", "y=0", "y=", "y=two",
          "cuts=", "cuts=0", "cuts=2,2", "cuts=3,1", "cuts=1,,2", "cuts=3,", "cuts=1;2"}) {
      CAPTURE(text);
      bool refused = false;
      try {
        MergePlan plan(text);
      } catch (const Error& e) {
        refused = true;
        CHECK(e.code() == ErrorCode::option_invalid);
        CHECK(std::string(e.what()).find(std::string("CRIMP_MERGE is '") + text + "'") == 0);
        CHECK(std::string(e.what()).find("cuts=i,j,...") != std::string::npos);
      }
      CHECK(refused);
    }
  }
}
