#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/report.hpp"
#include "horovod/record.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;
using namespace crimp::horovod;
using nlohmann::json;

TEST_SUITE("horovod_record") {
  namespace {

  Record sample() {
    Record r;
    r.explained = 90;
    r.unexplained[static_cast<std::size_t>(Unexplained::count_differs)] = 7;
    r.unexplained[static_cast<std::size_t>(Unexplained::list_unreadable)] = 3;
    r.heals = 2;
    r.merged_calls = 20, r.merged_tensors = 1400;
    r.groups = {40, 30};
    r.unmerged = 6;
    r.releases[static_cast<std::size_t>(Release::complete)] = 19;
    r.releases[static_cast<std::size_t>(Release::deadline)] = 1;
    return r;
  }

  }  // namespace

  TEST_CASE("what the decoder and the gate counted is in the file and in the summary") {
    const json h = json::parse(sample().json());
    CHECK(h["explained"] == 90);
    CHECK(h["unexplained"] == 10);
    CHECK(h["unexplained_why"]["count_differs"] == 7);
    CHECK(h["unexplained_why"]["list_unreadable"] == 3);
    CHECK(h["unexplained_why"]["type_differs"] == 0);
    CHECK(h["heals"] == 2);
    CHECK(h["merge"]["groups"] == json{40, 30});
    CHECK(h["merge"]["unmerged"] == 6);
    CHECK(h["merge"]["calls"] == 20);
    CHECK(h["merge"]["tensors"] == 1400);
    CHECK(h["merge"]["releases"]["complete"] == 19);
    CHECK(h["merge"]["releases"]["deadline"] == 1);
    CHECK(h["merge"]["releases"]["shutdown"] == 0);
    CHECK(has(sample().clause(), "the tensors of 90 of 100 data calls known"));
    CHECK(has(sample().clause(), "7 another count"));
    CHECK(has(sample().clause(), "2 times known again"));
    CHECK(has(sample().clause(), "1400 tensors merged into 20 calls by a plan of 2 groups"));
    CHECK(has(sample().clause(), "1 CRIMP_HOLD_MS was over), 6 of its tensors merged no more"));
    Record unheld = sample();
    unheld.releases = {};
    CHECK(has(unheld.clause(), "by a plan of 2 groups"));
    CHECK_FALSE(has(unheld.clause(), "held until"));
  }

  TEST_CASE("communicators are added; the plan with more tensors is named") {
    Record other, sum = sample();
    other.explained = 5;
    other.groups = {3};
    other.unmerged = 2;
    sum.add(other);
    const json h = json::parse(sum.json());
    CHECK(h["explained"] == 95);
    CHECK(h["unexplained"] == 10);
    CHECK(h["merge"]["groups"] == json{40, 30});
    CHECK(h["merge"]["unmerged"] == 6);
    CHECK_FALSE(has(Record().clause(), "merged"));
  }

  TEST_CASE("the line of a search names two times of a step only where they are of a plan and of none") {
    SearchRecord s;
    s.settled = true;
    s.searches = 1, s.steps = 120, s.tensors = 7;
    s.chosen.step_s = 61.04e-3;
    s.tried.push_back({{}, "no plan", 87.52e-3, 12});
    CHECK(has(s.line(), "no plan, as none gained a hundredth of the step on it; a step takes 61.04 ms, found in 120"));
    s.windows = MergeTrials::Windows{61.5e-3, 61.04e-3};
    CHECK(has(s.line(),
              "none gained a hundredth of the step on it; a step takes 61.50 ms under the best plan, without "
              "a plan 61.04, in windows of 50 steps, found in 120 steps"));
    s.chosen.plan.holds = true;
    s.windows = MergeTrials::Windows{61.04e-3, 70e-3};
    CHECK(has(s.line(), "7 tensors in one group; a step takes 61.04 ms under it, without a plan 70.00, in windows of"));
    s.windows.reset();
    CHECK(has(s.line(), "7 tensors in one group; a step takes 61.04 ms, without a plan 87.52, found in 120 steps"));
  }

  TEST_CASE("a report without Horovod has no such section, one with it has it whole") {
    Report report;
    CHECK_FALSE(json::parse(report.json()).contains("horovod"));
    CHECK_FALSE(has(report.summary(), "Horovod"));
    report.section("horovod", sample().json(), sample().clause());
    CHECK(json::parse(report.json())["horovod"]["merge"]["tensors"] == 1400);
    CHECK(has(report.summary(), "; Horovod: the tensors of 90 of 100 data calls known"));
  }
}
