#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/report.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;
using nlohmann::json;

TEST_SUITE("report") {
  TEST_CASE("nothing is said of rules where there was none") {
    Report report;
    CHECK(json::parse(report.json())["excluded"]["tensors"].empty());
    CHECK_FALSE(has(report.summary(), "CRIMP_RULES"));
  }

  TEST_CASE("names in any encoding") {
    Report report;
    report.excluded("caf\xe9.bias", 3);  // Latin 1
    report.excluded("caf\xc3\xa9.bias", 4);
    const json tensors = json::parse(report.json())["excluded"]["tensors"];
    REQUIRE(tensors.size() == 2);
    CHECK(tensors[0]["name"] == "caf\xc3\xa9.bias");
    CHECK(tensors[1]["name"] == "caf\xef\xbf\xbd.bias");  // U+FFFD
    CHECK(tensors[1]["elements"] == 3);
  }

  TEST_CASE("a section is in the file under its name, its clause in the summary; the last one stays") {
    Report report;
    report.section("weather", R"({"sun": 1, "rain": {"drops": 2}})", "1 hour of sun");
    CHECK(json::parse(report.json())["weather"]["rain"]["drops"] == 2);
    CHECK(has(report.summary(), "no call was compressed; 1 hour of sun"));
    report.section("weather", R"({"sun": 3})", "");
    CHECK(json::parse(report.json())["weather"] == json{{"sun", 3}});
    CHECK(report.summary() == "no call was compressed");
    CHECK(json::parse(report.json())["errors"] == 0);  // the report's own are there as well
  }

  TEST_CASE("tensors that rules exclude are listed by name, so many and no more") {
    Report report;
    for (int call = 0; call < 3; ++call) report.excluded("a.bias", 10);
    report.excluded("b.bias", 20);
    json e = json::parse(report.json())["excluded"];
    CHECK(e["calls"] == 4);
    REQUIRE(e["tensors"].size() == 2);
    CHECK(e["tensors"][0] == json{{"name", "a.bias"}, {"elements", 10}, {"calls", 3}});
    CHECK(e["tensors"][1]["elements"] == 20);
    CHECK(has(report.summary(), "; 2 tensors summed exactly by CRIMP_RULES"));
    for (int i = 0; i < 1000; ++i) report.excluded("t" + std::to_string(i), 1);
    e = json::parse(report.json())["excluded"];
    CHECK(e["tensors"].size() == 256);
    CHECK(e["calls"] == 1004);
    CHECK(e["unlisted_calls"] == 746);
    CHECK(has(report.summary(), "more than 256 tensors"));
  }
}
