#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/report.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;
using nlohmann::json;

namespace {

HorovodRecord sample() {
  HorovodRecord r;
  r.explained = 90;
  r.unexplained[static_cast<std::size_t>(Unexplained::count_differs)] = 7;
  r.unexplained[static_cast<std::size_t>(Unexplained::list_unreadable)] = 3;
  r.heals = 2;
  r.merged_calls = 20, r.merged_tensors = 1400;
  r.groups = {40, 30};
  r.releases[static_cast<std::size_t>(Release::complete)] = 19;
  r.releases[static_cast<std::size_t>(Release::deadline)] = 1;
  return r;
}


}  // namespace

TEST_SUITE("report") {
  TEST_CASE("nothing is said of Horovod and of rules where there was none") {
    Report report;
    CHECK_FALSE(json::parse(report.json()).contains("horovod"));
    CHECK(json::parse(report.json())["excluded"]["tensors"].empty());
    CHECK_FALSE(has(report.summary(), "Horovod"));
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

  TEST_CASE("what the decoder and the gate counted is in the file and in the summary") {
    Report report;
    report.horovod(sample());
    const json h = json::parse(report.json())["horovod"];
    CHECK(h["explained"] == 90);
    CHECK(h["unexplained"] == 10);
    CHECK(h["unexplained_why"]["count_differs"] == 7);
    CHECK(h["unexplained_why"]["list_unreadable"] == 3);
    CHECK(h["unexplained_why"]["type_differs"] == 0);
    CHECK(h["heals"] == 2);
    CHECK(h["merge"]["groups"] == json{40, 30});
    CHECK(h["merge"]["calls"] == 20);
    CHECK(h["merge"]["tensors"] == 1400);
    CHECK(h["merge"]["releases"]["complete"] == 19);
    CHECK(h["merge"]["releases"]["deadline"] == 1);
    CHECK(h["merge"]["releases"]["shutdown"] == 0);
    CHECK(has(report.summary(), "the tensors of 90 of 100 data calls known"));
    CHECK(has(report.summary(), "7 another count"));
    CHECK(has(report.summary(), "2 times known again"));
    CHECK(has(report.summary(), "1400 tensors merged into 20 calls by a plan of 2 groups"));
    CHECK(has(report.summary(), "1 CRIMP_HOLD_MS was over"));
  }

  TEST_CASE("communicators are added; the plan with more tensors is named") {
    Report report;
    report.horovod(sample());
    HorovodRecord other;
    other.explained = 5;
    other.groups = {3};
    report.horovod(other);
    const json h = json::parse(report.json())["horovod"];
    CHECK(h["explained"] == 95);
    CHECK(h["unexplained"] == 10);
    CHECK(h["merge"]["groups"] == json{40, 30});
    CHECK_FALSE(has(Report().summary(), "merged"));
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
