#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/progress.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"
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
    CHECK(has(report.summary(), "rank 0 compressed no call; 1 hour of sun"));
    report.section("weather", R"({"sun": 3})", "");
    CHECK(json::parse(report.json())["weather"] == json{{"sun", 3}});
    CHECK(report.summary() == "rank 0 compressed no call");
    CHECK(json::parse(report.json())["errors"] == 0);  // the report's own are there as well
  }

  TEST_CASE("what was waited for late ranks is said where it was measured, and only there") {
    Report plain;
    CallRecord call;
    call.codec = "fp16", call.algorithm = "allgather", call.layout = "named", call.bytes = call.bytes_in = 1000,
    call.sent_bytes = 500;
    call.wire_s = 0.5, call.total_s = 0.75;
    plain.compressed(call);
    CHECK_FALSE(has(plain.summary(), "waiting"));
    CHECK_FALSE(json::parse(plain.json()).contains("skew"));
    CHECK_FALSE(json::parse(plain.json()).contains("wait_s"));

    Report early, late;
    call.wait_s = 2;
    early.compressed(call);
    early.compressed(call);
    early.skew({2, 4, 0, 0});
    late.skew({2, 0.25, 1, 1.5});
    late.skew({1, 0.5, 1, 2});  // of another communicator
    CHECK(has(early.summary(), "decode 0.00), and before that waiting 4.00 s for ranks that came later"));
    const json of = json::parse(early.json());
    for (const json& sum :
         {of, of["codecs"]["fp16"], of["algorithms"]["allgather"], of["layouts"]["named"], of["size_classes"]["512"]}) {
      CHECK(sum["wait_s"] == 4);
      CHECK(sum["wire_s"] == 1);
    }
    const json job = json::parse(Report::of_job(Settings(), 3, "none", "on", {early.json(), "", late.json()}));
    CHECK(job["skew"]["per_rank"] ==
          json{{{"rank", 0}, {"calls", 2}, {"waited_s", 4}, {"last", 0}, {"late_s", 0}},
               {{"rank", 2}, {"calls", 3}, {"waited_s", 0.75}, {"last", 2}, {"late_s", 3.5}}});
    CHECK_FALSE(json::parse(Report::of_job(Settings(), 1, "none", "on", {plain.json()})).contains("skew"));
  }

  TEST_CASE(
      "a call of several codecs is one call, of each algorithm and reason as well; its bytes are those of its parts") {
    Report report;
    const auto part = [&](const char* codec, const char* algorithm, const char* why) {
      CallRecord r{codec, "named", algorithm, why};
      r.bytes = 1000, r.bytes_in = 400, r.sent_bytes = 100, r.total_s = 0.5;
      return r;
    };
    CallRecord a = part("8bit", "allgather", "forced"), b = part("topk", "two_shot", "forced"),
               c = part("fp16", "allgather", "tried"), d = part("bf16", "allgather", "tried");
    for (CallRecord* later : {&b, &c, &d}) later->first = false;
    c.first_by_algorithm = d.first_by_algorithm = d.first_for_why = false;
    for (int call = 0; call < 10; ++call)
      for (const CallRecord* r : {&a, &b, &c, &d}) report.compressed(*r);
    CHECK(report.progress().compressed == 10);
    CHECK(has(report.summary(),
              "10 calls compressed (10 with 8bit, 10 with bf16, 10 with fp16, 10 with topk; "
              "10 by allgather, 10 by two_shot): 16.0 kB in, 4.0 kB sent"));
    const json of = json::parse(report.json());
    CHECK(of["calls"] == 10);
    CHECK(of["total_s"] == 20);
    CHECK(of["layouts"]["named"]["calls"] == 10);
    CHECK(of["size_classes"].size() == 1);
    CHECK(of["size_classes"]["512"]["calls"] == 10);
    CHECK(of["size_classes"]["512"]["bytes_in"] == 16000);
    CHECK(of["algorithms"]["allgather"]["calls"] == 10);
    CHECK(of["algorithms"]["allgather"]["bytes_in"] == 12000);
    CHECK(of["algorithms"]["allgather"]["why"] == json{{"forced", 10}, {"tried", 10}});
    CHECK(of["algorithms"]["two_shot"]["calls"] == 10);
    CHECK(of["codecs"]["fp16"]["calls"] == 10);
  }

  TEST_CASE("no ratio where a rank had nothing for others but headers") {
    CallRecord call{"fp32", "unknown", "reduce_scatter", "forced"};
    call.bytes = 8'000'000, call.sent_bytes = 1300, call.received_bytes = 24'000'000;
    Report root;
    root.compressed(call);
    CHECK(has(root.summary(), "1 by reduce_scatter): rank 0 only received, and sent 1.3 kB of headers, in "));
    CHECK_FALSE(has(root.summary(), "less"));
    json of = json::parse(root.json());
    CHECK(of["bytes_in"] == 0);
    CHECK(of["ratio"] == 0);
    CHECK(of["size_classes"]["4194304"]["calls"] == 1);  // by what a call has, not by what of it travels
    call.bytes_in = 4'000'000, call.sent_bytes = 4'000'000;
    root.compressed(call);
    CHECK(has(root.summary(), ": 4.00 MB in, 4.00 MB sent by rank 0 (1.0x less), in "));
    of = json::parse(root.json());
    CHECK(of["size_classes"]["4194304"]["calls"] == 2);
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
