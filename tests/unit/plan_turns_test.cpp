#include "schedule/plan_turns.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace crimp;

TEST_SUITE("plan_turns") {
  TEST_CASE("turns with the plan before them are one, and a text gives them back") {
    PlanTurns turns;
    turns.tensors = {"b", "a\"\n", "caf\u00e9"};
    turns.add({false, {}}, 4);
    turns.add({false, {}}, 4);
    turns.add({true, {{1, 2}, {}}}, 4);
    turns.add({true, {{1, 2}, {0, 1, 0}}}, 4);
    turns.add({true, {{1, 2}, {0, 0, 1}}}, 4);
    turns.add({true, {}}, 50);
    REQUIRE(turns.turns.size() == 5);
    CHECK(turns.turns[0].steps == 8);
    CHECK(PlanTurns::parse(turns.json()) == turns);
    CHECK(turns.is_of({"a\"\n", "b", "caf\u00e9"}));
    CHECK_FALSE(turns.is_of({"a", "b", "caf\u00e9"}));
    CHECK_FALSE(turns.is_of({"b", "a\"\n"}));
  }

  TEST_CASE("of more changes than are kept the first ones are") {
    PlanTurns turns;
    turns.tensors = {"a", "b"};
    for (std::size_t i = 0; i < PlanTurns::kMost + 3; ++i) turns.add({i % 2 == 0, {}}, 1);
    CHECK(turns.turns.size() == PlanTurns::kMost);
    CHECK(turns.truncated);
    CHECK(PlanTurns::parse(turns.json()).truncated);
    const auto last = turns.turns.back();
    turns.add(last.plan, 1);  // it would not be the neighbour's
    CHECK(turns.turns.back() == last);
  }

  TEST_CASE("names that are no UTF-8 do not stop a report") {
    PlanTurns turns;
    turns.tensors = {"a\xff"};
    turns.add({true, {}}, 4);
    CHECK(PlanTurns::parse(turns.json()).turns == turns.turns);
  }

  TEST_CASE("what makes no sense is refused") {
    for (const char* text :
         {"", "[]", "{}", R"({"tensors":["a"],"turns":[]})", R"({"tensors":[],"turns":[],"truncated":false})",
          R"({"tensors":["a","a"],"turns":[],"truncated":false})", R"({"tensors":[1],"turns":[],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":0,"holds":true,"cuts":[1]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":-4,"holds":true,"cuts":[1]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":true,"cuts":[2]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":true,"cuts":[0]}],"truncated":false})",
          R"({"tensors":["a","b","c"],"turns":[{"steps":4,"holds":true,"cuts":[2,1]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":true,"cuts":[1],"codecs":[1]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":true,"cuts":[1],"codecs":[0,4]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":false,"cuts":[],"codecs":[1]}],"truncated":false})",
          R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":false,"cuts":[1]}],"truncated":false})"}) {
      CAPTURE(text);
      CHECK_THROWS_AS(PlanTurns::parse(text), std::runtime_error);
    }
    CHECK_NOTHROW(
        PlanTurns::parse(R"({"tensors":["a","b"],"turns":[{"steps":4,"holds":true,"cuts":[1]}],"truncated":false})"));
  }
}
