// What calls took beside what they would have: sums by hand, and what is not known.
#include "collective/account.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "collective/trials.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"
#include "support/thread_transport.hpp"

using namespace crimp;
using nlohmann::json;

TEST_SUITE("account") {
  namespace {

  const Choice kGather{.carriage = {Algorithm::allgather}}, kShots{.carriage = {Algorithm::two_shot}};

  // Finished: so many seconds an element by each.
  Trials tried(double gather_s, double shots_s, double plain_s) {
    Trials trials({{.carriage = {Algorithm::allgather}, .predicted_s = 1, .plain_s = 1},
                   {.carriage = {Algorithm::two_shot}, .predicted_s = 1, .plain_s = 1}},
                  true);
    test::run_ranks(1, [&](test::ThreadTransport& transport) {
      while (true) {
        const Choice next = trials.choose(transport, {}, 100);
        if (!next.trial) break;
        trials.took(100 * (next.plain ? plain_s : same(next, kGather) ? gather_s : shots_s), 100);
      }
    });
    return trials;
  }

  Account::Known known(const Trials& trials, const Curve* model = nullptr) {
    return {trials.best_s(), trials.plain_s(), model, &trials};
  }

  }  // namespace

  TEST_CASE("of calls is known what was measured when they were closed; of those after, what is then") {
    Curve model;
    model.add(0, 1);
    model.add(1000, 3);
    Account account;
    CHECK(account.total({}).calls == 0);
    CHECK(account.total({.best_s = 1, .model = &model}).best.calls == 0);
    account.call(kGather, 100, 400, 5);
    account.call(kGather, 300, 600, 7);
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
    CHECK(r.plain_predicted.own_s == 12);
    CHECK(r.best.calls == 0);

    account.close({.best_s = 0.01, .plain_s = 0.02, .model = &model});
    account.call(kGather, 1000, 4000, 30);
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
    const auto call = [&](const Account::Known& now) { account.learn(now), account.call(kGather, 100, 400, 1); };
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

  TEST_CASE("waiting for a late rank is nobody's loss: what was tried counts as it was then") {
    const Trials trials = tried(0.02, 0.01, 0.16);
    CHECK(trials.best_s() == doctest::Approx(0.01));
    Account account;
    account.call(kGather, 100, 400, 30);  // 2 s as tried
    for (int i = 0; i < 3; ++i) account.call(kShots, 100, 400, 31);
    account.call({.carriage = {Algorithm::node_sum}}, 100, 400, 5);  // was not tried
    account.passed(100, 400, 40);                                    // MPI's own: 16 s as tried
    for (const bool learnt : {false, true}) {
      if (learnt) account.learn(known(trials));
      const TimeRecord r = account.total(known(trials));
      CHECK(r.took_s == doctest::Approx(30 + 93 + 5 + 40));
      CHECK(r.best.calls == 6);
      CHECK(r.best.took_s == doctest::Approx(168));
      CHECK(r.best.own_s == doctest::Approx(2 + 3 + 5 + 16));
      CHECK(r.best.s == doctest::Approx(6));
      CHECK(r.plain_measured.calls == 6);
      CHECK(r.plain_measured.own_s == doctest::Approx(2 + 3 + 5 + 16));
      CHECK(r.plain_measured.s == doctest::Approx(6 * 16));
    }
    // Trials that have gone on since hold of later calls.
    const Trials anew = tried(0.5, 0.25, 1);
    account.learn(known(anew));
    account.call(kShots, 100, 400, 26);
    const TimeRecord r = account.total(known(anew));
    CHECK(r.best.own_s == doctest::Approx(26 + 25));
    CHECK(r.plain_measured.s == doctest::Approx(96 + 100));
  }

  TEST_CASE("what was predicted of calls stays where their trials begin anew") {
    Curve model;
    model.add(0, 1);
    model.add(1000, 3);
    Account account;
    account.call(kGather, 100, 500, 5);
    account.learn({.best_s = 0.01, .model = &model});  // MPI was not tried
    account.learn({.model = &model});
    const TimeRecord r = account.total({.model = &model});
    CHECK(r.best.s == doctest::Approx(1));
    CHECK(r.plain_predicted.calls == 1);
    CHECK(r.plain_predicted.s == doctest::Approx(2));
  }

  TEST_CASE("calls of MPI's own count with their time, and no prediction says more than one of them took") {
    Curve model;
    model.add(0, 1);
    model.add(1000, 1000);
    Account account;
    account.passed(100, 1000, 3);
    account.passed(100, 1000, 2);
    account.call(kShots, 200, 1000, 1);
    const TimeRecord r = account.total({.model = &model});
    CHECK(r.plain_measured.calls == 2);
    CHECK(r.plain_measured.own_s == 5);
    CHECK(r.plain_measured.s == 5);
    CHECK(r.plain_predicted.calls == 1);
    CHECK(r.plain_predicted.s == doctest::Approx(200 * 0.02));
  }

  TEST_CASE("calls of several codecs are those of each, and in total of the one that has most of them") {
    Curve model;
    model.add(0, 1);
    model.add(1000, 3);
    Account most, rest;
    for (int call = 0; call < 4; ++call) most.call(kGather, 300, 500, 2), rest.call(kGather, 100, 500, 1, true);
    most.passed(300, 500, 3), rest.passed(100, 500, 1, true);
    rest.call(kGather, 100, 500, 1);  // alone
    rest.close({.best_s = 0.01});
    Report report;
    report.times("3lc", 256, most.total({.model = &model}));
    report.times("fp16", 64, rest.total({}));
    const json time = json::parse(report.json())["time"];
    CHECK(time["calls"] == 6);
    CHECK(time["took_s"] == 17.0);
    CHECK(time["best"]["calls"] == 1);
    CHECK(time["best"]["took_s"] == 6.0);  // with the parts of what the other codec counts
    CHECK(time["best"]["unknown"] == json{{"calls", 5}, {"took_s", 11.0}});
    CHECK(time["without_crimp"]["measured"]["calls"] == 1);
    CHECK(time["without_crimp"]["predicted"]["calls"] == 4);
    CHECK(time["without_crimp"]["unknown"] == json{{"calls", 1}, {"took_s", 5.0}});
    const json &of_most = time["classes"][0], &of_rest = time["classes"][1];
    CHECK(of_most["calls"] == 5);
    CHECK(of_rest["calls"] == 6);
    CHECK(of_rest["best"]["calls"] == 6);
    CHECK(of_rest["best"]["unknown"] == json{{"calls", 0}, {"took_s", 0.0}});
  }

  TEST_CASE("times per class and codec, of the rank and of the job; what is unknown is said, and is no zero") {
    Report report;
    TimeRecord known;
    known.calls = 10, known.elements = 1000, known.took_s = 5;
    known.best = {8, 4, 3.5, 3};
    known.plain_measured = {6, 3, 2.5, 6};
    known.plain_predicted = {2, 1, 1, 1.5};
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
    CHECK(time["best"]["own_s"] == 7.0);
    CHECK(time["best"]["regret_s"] == 1.0);
    CHECK(time["best"]["unknown"] == json{{"calls", 7}, {"took_s", 4.0}});
    CHECK(time["without_crimp"]["measured"] == json{{"calls", 12}, {"took_s", 6.0}, {"own_s", 5.0}, {"plain_s", 12.0}});
    CHECK(time["without_crimp"]["predicted"] == json{{"calls", 4}, {"took_s", 2.0}, {"own_s", 2.0}, {"plain_s", 3.0}});
    CHECK(time["without_crimp"]["unknown"] == json{{"calls", 7}, {"took_s", 4.0}});
    REQUIRE(time["classes"].size() == 2);
    CHECK(time["classes"][0]["codec"] == "3lc");
    CHECK(time["classes"][0]["from_elements"] == 64);
    CHECK(time["classes"][0]["elements"] == 2000);
    CHECK(time["classes"][0]["best"]["regret_s"] == 1.0);
    CHECK(time["classes"][1]["codec"] == "fp16");
    CHECK(time["classes"][1]["best"]["calls"] == 0);
    CHECK(time["classes"][1]["best"]["unknown"] == json{{"calls", 3}, {"took_s", 2.0}});

    // The job's are the ranks' added; one rank could not make its part.
    const json job = json::parse(Report::of_job(Settings{}, 3, "", "on", {report.json(), "", report.json()}));
    CHECK(job["time"]["calls"] == 46);
    CHECK(job["time"]["took_s"] == 24.0);
    CHECK(job["time"]["best"]["regret_s"] == 2.0);
    CHECK(job["time"]["without_crimp"]["unknown"]["calls"] == 14);
    CHECK_FALSE(job["time"].contains("classes"));
  }
}
