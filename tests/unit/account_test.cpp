// What calls took beside what they would have: sums by hand, and what is not known.
#include "collective/account.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/report.hpp"
#include "core/settings.hpp"

using namespace crimp;
using nlohmann::json;

TEST_SUITE("account") {
  TEST_CASE("of calls is known what was measured when they were closed; of those after, what is then") {
    Curve model;
    model.add(0, 1);
    model.add(1000, 3);
    Account account;
    CHECK(account.total({}).calls == 0);
    CHECK(account.total({.best_s = 1, .model = &model}).best.calls == 0);
    account.call(100, 400, 5);
    account.call(300, 600, 7);
    TimeRecord r = account.total({});
    CHECK(r.calls == 2);
    CHECK(r.elements == 400);
    CHECK(r.took_s == 12);
    CHECK(r.best.calls + r.plain_measured.calls + r.plain_predicted.calls == 0);
    // The model is asked for the mean of the bytes, 500: 2 s a call.
    r = account.total({.model = &model});
    CHECK(r.plain_predicted.calls == 2);
    CHECK(r.plain_predicted.s == doctest::Approx(4));
    CHECK(r.plain_predicted.took_s == 12);
    CHECK(r.best.calls == 0);

    account.close({.best_s = 0.01, .plain_s = 0.02, .model = &model});
    account.call(1000, 4000, 30);
    r = account.total({.best_s = 0.02});
    CHECK(r.calls == 3);
    CHECK(r.took_s == 42);
    CHECK(r.best.calls == 3);
    CHECK(r.best.took_s == 42);
    CHECK(r.best.s == doctest::Approx(400 * 0.01 + 1000 * 0.02));
    CHECK(r.plain_measured.calls == 2);  // the third is not known
    CHECK(r.plain_measured.took_s == 12);
    CHECK(r.plain_measured.s == doctest::Approx(8));
    CHECK(r.plain_predicted.calls == 0);
    account.close({});
    CHECK(account.total({.best_s = 1}).best.calls == 2);
  }

  TEST_CASE("what is measured anew says nothing of the calls before") {
    Account account;
    const auto call = [&](const Account::Known& now) { account.learn(now), account.call(100, 400, 1); };
    call({});  // tried: nothing is known yet
    call({.best_s = 0.01, .plain_s = 0.02});
    CHECK(account.total({.best_s = 0.01, .plain_s = 0.02}).best.s == doctest::Approx(2));
    CHECK(account.total({}).best.s == doctest::Approx(2));  // its trials have begun anew since
    call({});
    CHECK(account.total({}).best.calls == 2);  // of the third nothing is known yet
    CHECK(account.total({.best_s = 0.05, .plain_s = 0.01}).best.s == doctest::Approx(2 + 5));
    call({.best_s = 0.05, .plain_s = 0.01});
    const TimeRecord r = account.total({.best_s = 0.05, .plain_s = 0.01});
    CHECK(r.calls == 4);
    CHECK(r.best.calls == 4);
    CHECK(r.best.s == doctest::Approx(2 + 10));
    CHECK(r.plain_measured.s == doctest::Approx(4 + 2));
  }

  TEST_CASE("times per class and codec, of the rank and of the job; what is unknown is said, and is no zero") {
    Report report;
    TimeRecord known;
    known.calls = 10, known.elements = 1000, known.took_s = 5;
    known.best = {8, 4, 3};
    known.plain_measured = {6, 3, 6};
    known.plain_predicted = {2, 1, 1.5};
    TimeRecord unknown;
    unknown.calls = 3, unknown.elements = 30, unknown.took_s = 2;
    report.times("3lc", 64, known);
    report.times("3lc", 64, known);  // of another communicator
    report.times("fp16", 8, unknown);
    const json rank = json::parse(report.json());
    const json& time = rank["time"];
    CHECK(time["calls"] == 23);
    CHECK(time["took_s"] == 12.0);
    CHECK(time["best"]["calls"] == 16);
    CHECK(time["best"]["took_s"] == 8.0);
    CHECK(time["best"]["best_s"] == 6.0);
    CHECK(time["best"]["regret_s"] == 2.0);
    CHECK(time["best"]["unknown"] == json{{"calls", 7}, {"took_s", 4.0}});
    CHECK(time["without_crimp"]["measured"] == json{{"calls", 12}, {"took_s", 6.0}, {"plain_s", 12.0}});
    CHECK(time["without_crimp"]["predicted"] == json{{"calls", 4}, {"took_s", 2.0}, {"plain_s", 3.0}});
    CHECK(time["without_crimp"]["unknown"] == json{{"calls", 7}, {"took_s", 4.0}});
    REQUIRE(time["classes"].size() == 2);
    CHECK(time["classes"][0]["codec"] == "3lc");
    CHECK(time["classes"][0]["from_elements"] == 64);
    CHECK(time["classes"][0]["elements"] == 2000);
    CHECK(time["classes"][0]["best"]["regret_s"] == 2.0);
    CHECK(time["classes"][1]["codec"] == "fp16");
    CHECK(time["classes"][1]["best"]["calls"] == 0);
    CHECK(time["classes"][1]["best"]["unknown"] == json{{"calls", 3}, {"took_s", 2.0}});

    // The job's are the ranks' added; one rank could not make its part.
    const json job = json::parse(Report::of_job(Settings{}, 3, "", "on", {report.json(), "", report.json()}));
    CHECK(job["time"]["calls"] == 46);
    CHECK(job["time"]["took_s"] == 24.0);
    CHECK(job["time"]["best"]["regret_s"] == 4.0);
    CHECK(job["time"]["without_crimp"]["unknown"]["calls"] == 14);
    CHECK_FALSE(job["time"].contains("classes"));
  }
}
