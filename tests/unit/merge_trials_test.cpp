// CRIMP_MERGE=auto on a machine whose steps take what the timeline says, or something else.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "schedule/merge_trials.hpp"

using namespace crimp;

TEST_SUITE("merge_trials") {
  namespace {

  struct Machine {
    Timeline step;
    double own_plan_s = 1;  // of a step without a plan

    double takes(const MergeTrials::Plan& plan) const { return plan.holds ? step.end_s(plan.groups) : own_plan_s; }
    // One step under the plan, as rank 0 sees it.
    void run(MergeTrials& trials, bool disturbed = false, double times = 1) const {
      const auto& plan = trials.plan();
      Cuts ends = plan.groups.cuts;
      ends.push_back(static_cast<std::uint32_t>(step.bytes.size()));
      std::size_t i = 0;
      for (std::size_t g = 0; g < ends.size(); ++g) {
        std::uint64_t bytes = 0;
        for (; i < ends[g]; ++i) bytes += step.bytes[i];
        trials.called(bytes, times * step.call(bytes, plan.groups.codec(g)).total_s());
      }
      std::vector<double> ready(step.bytes.size(), -1);
      if (trials.wants_ready()) ready = step.ready_s;
      trials.stepped(times * (disturbed ? 100 : 1) * takes(plan), ready, disturbed);
    }
    bool turn(MergeTrials& trials, bool disturbed = false, double times = 1) const {
      for (unsigned s = trials.steps(); s > 0; --s) run(trials, disturbed, times);
      return trials.next();
    }
    int until_chosen(MergeTrials& trials) const {
      for (int turns = 1; turns < 200; ++turns)
        if (turn(trials)) return turns;
      return 0;
    }
  };

  // 24 tensors of 4 MB, one every 2 ms; calls of 1 ms and 1 ns a byte.
  Machine machine() {
    Machine m;
    for (int i = 0; i < 24; ++i) {
      m.step.ready_s.push_back(2e-3 * (i + 1));
      m.step.bytes.push_back(4'000'000);
    }
    m.step.call = [](std::uint64_t bytes, std::uint8_t) {
      return CallTime{.wire_s = 1e-3 + 1e-9 * static_cast<double>(bytes)};
    };
    return m;
  }

  std::vector<bool> anywhere(std::size_t n) { return std::vector<bool>(n, true); }

  }  // namespace

  TEST_CASE("the plan that is best by measurement is chosen, and it is the timeline's optimum where that is true") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    CHECK_FALSE(trials.plan().holds);
    CHECK(m.until_chosen(trials) > 0);
    CHECK(trials.watching());
    const double best = m.step.end_s(best_grouping(m.step));
    CHECK(m.takes(trials.plan()) <= best * 1.02);  // calls were measured by half octaves
    CHECK(best < m.step.end_s({}) * 0.99);
    CHECK(trials.candidates().size() >= 4);
    CHECK(trials.searched_steps() < 200);
  }

  TEST_CASE("no plan is chosen over none that was never measured: who is disturbed at first is tried again") {
    Machine m = machine();
    m.own_plan_s = m.step.end_s(best_grouping(m.step)) / 2;
    for (const int disturbed : {1, 7, 9, 20, 40}) {
      CAPTURE(disturbed);
      MergeTrials trials(m.step.bytes, anywhere(24));
      int without = 0;
      for (int turns = 0; turns < 200 && !trials.watching(); ++turns)
        m.turn(trials, !trials.plan().holds && without++ < disturbed);
      CHECK(trials.watching());
      CHECK(without > disturbed);
      CHECK_FALSE(trials.candidates().front().steps_s.empty());
      CHECK_FALSE(trials.plan().holds);
    }
  }

  // Whatever the timeline says: what it knows of calls may be wrong, and buckets are what all others do.
  TEST_CASE("buckets of 32 and 8 MiB are tried where they are plans of their own") {
    const Machine m = machine();  // 96 MB
    const auto origins = [](const MergeTrials& of) {
      std::vector<std::string> all;
      for (const auto& c : of.candidates()) all.emplace_back(c.origin);
      return all;
    };
    using Texts = std::vector<std::string>;
    CHECK(origins(MergeTrials(m.step.bytes, anywhere(24))) ==
          Texts{"no plan", "all in one", "y=2", "bytes=32M", "bytes=8M"});
    CHECK(origins(MergeTrials({1'000'000, 1'000'000, 1'000'000}, anywhere(3))) ==
          Texts{"no plan", "all in one", "y=2"});
  }

  TEST_CASE("no plan stays where plans gain less than a hundredth") {
    Machine m = machine();
    m.own_plan_s = m.step.end_s(best_grouping(m.step)) * 1.005;
    MergeTrials trials(m.step.bytes, anywhere(24));
    CHECK(m.until_chosen(trials) > 0);
    CHECK_FALSE(trials.plan().holds);
    m.own_plan_s = m.step.end_s(best_grouping(m.step)) * 1.05;
    MergeTrials gains(m.step.bytes, anywhere(24));
    CHECK(m.until_chosen(gains) > 0);
    CHECK(gains.plan().holds);
  }

  TEST_CASE("what the timeline does not know is decided by measurement") {
    // All in one is fastest whatever the timeline says, as where cores are what everything waits for.
    class Contended {
     public:
      double operator()(const MergeTrials::Plan& p) const {
        return p.holds ? 0.1 + 0.01 * double(p.groups.cuts.size()) : 0.5;
      }
    } takes;
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    bool chosen = false;
    for (int turns = 0; turns < 200 && !chosen; ++turns) {
      for (unsigned s = trials.steps(); s > 0; --s) {
        std::vector<double> ready(24, -1);
        if (trials.wants_ready()) ready = m.step.ready_s;
        for (const std::uint64_t bytes : {4'000'000u, 48'000'000u, 96'000'000u})
          trials.called(bytes, m.step.call(bytes, 0).total_s());
        trials.stepped(takes(trials.plan()), ready, false);
      }
      chosen = trials.next();
    }
    CHECK(chosen);
    CHECK(trials.plan() == MergeTrials::Plan{true, {}});
  }

  TEST_CASE("groups that must stay whole are whole in every plan that is tried") {
    const Machine m = machine();
    std::vector<bool> may(24, true);
    for (int i = 5; i < 12; ++i) may[static_cast<std::size_t>(i)] = false;
    MergeTrials trials(m.step.bytes, may);
    CHECK(m.until_chosen(trials) > 0);
    for (const auto& c : trials.candidates())
      for (const auto cut : c.plan.groups.cuts) CHECK(may[cut]);
  }

  TEST_CASE("groups have the codecs that take least for them") {
    // 24 large tensors, and 24 small ones much earlier: for 4 MB the second codec takes a third, for 1 KB three times
    // as much.
    Machine m;
    for (int i = 0; i < 48; ++i) {
      m.step.ready_s.push_back(i < 24 ? 5e-3 * i : 0.5 + 2e-3 * i);
      m.step.bytes.push_back(i < 24 ? 1000 : 4'000'000);
    }
    m.step.codecs = 2;
    m.step.call = [](std::uint64_t bytes, std::uint8_t codec) {
      const double s = 1e-9 * static_cast<double>(bytes);
      return codec ? CallTime{.wire_s = 3e-3 + s / 3} : CallTime{.wire_s = 1e-3 + s};
    };
    MergeTrials trials(m.step.bytes, anywhere(48), 2);
    CHECK(m.until_chosen(trials) > 0);
    const Grouping chosen = trials.plan().groups;
    CHECK(m.step.end_s(chosen) <= m.step.end_s(best_grouping(m.step)) * 1.02);
    // The first codec alone, however grouped, would take longer.
    Timeline first = m.step;
    first.codecs = 1;
    CHECK(m.step.end_s(chosen) < first.end_s(best_grouping(first)));
    for (const char* origin : {"all in one, another codec", "y=2, another codec"})
      CHECK(std::any_of(trials.candidates().begin(), trials.candidates().end(),
                        [&](const auto& c) { return std::string(c.origin) == origin; }));
  }

  TEST_CASE("disturbed steps say nothing, and a plan that has only such ones is not chosen") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    for (int turn = 0; turn < 5; ++turn) m.turn(trials, true);
    CHECK_FALSE(trials.plan().holds);  // still the first candidate's turn
    CHECK(m.until_chosen(trials) > 0);
    for (const auto& c : trials.candidates())
      for (const double s : c.steps_s) CHECK(s <= 1);
    MergeTrials never(m.step.bytes, anywhere(24));
    for (int turn = 0; turn < 200 && !never.watching(); ++turn) m.turn(never, true);
    CHECK(never.watching());
    CHECK_FALSE(never.plan().holds);
  }

  // A call of all tensors may be of a size that was never seen, whose algorithms are tried for 56 calls (Trials).
  TEST_CASE("a plan whose first sixty steps are disturbed is measured all the same, and the timeline is known") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    const MergeTrials::Plan all{true, {}};
    int tried = 0;
    for (int turns = 0; turns < 200 && !trials.watching(); ++turns) {
      bool over = false;
      for (unsigned s = trials.steps(); s > 0; --s) {
        const bool disturbed = trials.plan() == all && tried++ < 60;
        m.run(trials, disturbed, disturbed ? 30 : 1);
      }
      over = trials.next();
      if (over) break;
    }
    REQUIRE(trials.watching());
    const auto found = [&](auto&& of) {
      return std::find_if(trials.candidates().begin(), trials.candidates().end(), of);
    };
    const auto whole = found([&](const auto& c) { return c.plan == all; });
    REQUIRE(whole != trials.candidates().end());
    CHECK_FALSE(whole->steps_s.empty());
    CHECK(found([](const auto& c) { return std::string(c.origin) == "the timeline's optimum"; }) !=
          trials.candidates().end());
    CHECK(m.takes(trials.plan()) <= m.step.end_s(best_grouping(m.step)) * 1.02);
    // What calls took while something was tried is no call's time.
    const StepTrace seen = trials.trace();
    REQUIRE_FALSE(seen.calls[0].empty());
    CHECK(seen.calls[0].points().back().s < 2 * m.step.call(96'000'000, 0).total_s());
  }

  // takes(plan, how many turns it has had); returns what was chosen.
  template <class Takes>
  static MergeTrials::Plan chosen_of(MergeTrials & trials, const Takes& takes) {
    std::vector<std::pair<MergeTrials::Plan, int>> had;
    for (int turns = 0; turns < 200 && !trials.watching(); ++turns) {
      const MergeTrials::Plan plan = trials.plan();
      auto at = std::find_if(had.begin(), had.end(), [&](const auto& of) { return of.first == plan; });
      if (at == had.end()) at = had.insert(had.end(), {plan, 0});
      for (unsigned i = trials.steps(); i > 0; --i)
        trials.stepped(takes(plan, at->second), std::vector<double>(24, -1), false);
      ++at->second;
      trials.next();
    }
    REQUIRE(trials.watching());
    return trials.plan();
  }

  TEST_CASE("a plan that was lucky in the first rounds is found out in the last ones, where only near ones are") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    const MergeTrials::Plan all{true, {}};
    std::size_t in_last_rounds = 0;
    const auto chosen = chosen_of(trials, [&](const MergeTrials::Plan& plan, int turns) {
      in_last_rounds += turns == MergeTrials::kRounds;
      if (plan == all) return turns < MergeTrials::kRounds ? 0.9 : 1.05;
      if (!plan.holds) return 1.1;
      return plan.groups.cuts.size() == 1 ? 0.95 : 1.1;
    });
    CHECK(chosen == MergeTrials::Plan{true, {{12}, {}}});  // y=2
    // These two and no plan: the others were a fifth slower than all in one seemed to be.
    CHECK(in_last_rounds == 3 * MergeTrials::kTurn);
  }

  TEST_CASE("no plan is left out for one slow turn") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    const auto chosen = chosen_of(trials, [](const MergeTrials::Plan& plan, int turns) {
      return plan.holds ? 1.0 : turns == 0 ? 1.7 : 0.9;
    });
    CHECK_FALSE(chosen.holds);
    // Unless it takes so long that a few turns of it cost more than it may gain.
    MergeTrials far(m.step.bytes, anywhere(24));
    chosen_of(far, [](const MergeTrials::Plan& plan, int) { return plan.holds ? 1.0 : 4.0; });
    CHECK(far.candidates().front().steps_s.size() == MergeTrials::kTurn - 1);
  }

  TEST_CASE("a plan that was lucky is held against none once more, behind its first window") {
    Machine m = machine();
    m.own_plan_s = 2 * m.step.end_s({});
    const auto settle = [&](double plan_later_s, double none_later_s) {
      MergeTrials trials(m.step.bytes, anywhere(24));
      m.until_chosen(trials);
      REQUIRE(trials.plan().holds);
      const auto window = [&] {
        const double s = trials.plan().holds ? plan_later_s : none_later_s;
        for (unsigned i = trials.steps(); i > 0; --i) trials.stepped(s, std::vector<double>(24, -1), false);
        return trials.next();
      };
      CHECK_FALSE(window());
      CHECK(trials.watching());
      CHECK(trials.doubting() == !trials.plan().holds);
      CHECK_FALSE(trials.windows());
      const bool told = window();
      CHECK_FALSE(trials.doubting());
      return std::pair{std::move(trials), told};
    };
    const double none_s = m.own_plan_s;
    auto [worse, told] = settle(1.2 * none_s, none_s);
    CHECK(told);
    CHECK_FALSE(worse.plan().holds);
    CHECK(worse.chosen_s() == none_s);
    CHECK(worse.watching());
    REQUIRE(worse.windows());
    CHECK(worse.windows()->under_s == 1.2 * none_s);
    CHECK(worse.windows()->without_s == none_s);
    // All steps have become longer, and the plan is the better one still.
    auto [better, silent] = settle(1.2 * none_s, 2.4 * none_s);
    CHECK_FALSE(silent);
    CHECK(better.plan().holds);
    CHECK(better.chosen_s() == 1.2 * none_s);
    REQUIRE(better.windows());
    CHECK(better.windows()->without_s == 2.4 * none_s);
    // Who gains as much as was seen is not asked.
    auto [good, quiet] = settle(0.5 * none_s, none_s);
    CHECK_FALSE(quiet);
    CHECK(good.plan().holds);
    CHECK(good.chosen_s() == 0.5 * none_s);
    CHECK_FALSE(good.windows());
  }

  TEST_CASE("ten thousand tensors are planned in less than the steps' time, by some of their places") {
    Machine m = machine();
    m.step.ready_s.clear(), m.step.bytes.clear();
    for (int i = 0; i < 10'000; ++i) {
      m.step.ready_s.push_back(2e-5 * (i + 1));
      m.step.bytes.push_back(i % 2 ? 10'000 : 20'000);
    }
    MergeTrials trials(m.step.bytes, anywhere(10'000));
    CHECK(m.until_chosen(trials) > 0);
    const StepTrace seen = trials.trace();
    CHECK(seen.units.size() <= MergeTrials::kMostUnits);
    std::uint64_t tensors = 0, bytes = 0;
    for (const auto& unit : seen.units) tensors += unit.tensors, bytes += unit.bytes;
    CHECK(tensors == 10'000);
    CHECK(bytes == 5000ull * 30'000);
    const double all = m.step.end_s({}), chosen = m.takes(trials.plan());
    CHECK(chosen < all);
  }

  TEST_CASE("steps that take otherwise for two windows begin a new search, one window does not") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    m.until_chosen(trials);
    const auto plan = trials.plan();
    for (int window = 0; window < 10; ++window) m.turn(trials, false, window == 3 || window == 6 ? 2 : 1.2);
    CHECK(trials.watching());
    CHECK(trials.searches() == 1);
    const StepTrace first = trials.trace();
    REQUIRE(first.steps > 0);
    m.turn(trials, false, 2);
    m.turn(trials, false, 2);
    CHECK_FALSE(trials.watching());
    CHECK(trials.searches() == 2);
    CHECK(trials.trace().json() == first.json());  // the new search has not measured anything yet
    CHECK(std::any_of(trials.candidates().begin(), trials.candidates().end(),
                      [&](const auto& c) { return c.plan == plan; }));
    CHECK(m.until_chosen(trials) > 0);
    CHECK(trials.trace().steps > 0);
    CHECK(trials.trace().json() != first.json());
  }

  TEST_CASE("a plan that is reused is watched at once") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    const MergeTrials::Plan plan{true, {{7}, {}}};
    trials.reuse(plan, m.takes(plan));
    CHECK(trials.watching());
    CHECK(trials.plan() == plan);
    CHECK(trials.steps() == MergeTrials::kWindow);
    CHECK(trials.chosen_s() == m.takes(plan));
    for (int window = 0; window < 5; ++window) CHECK_FALSE(m.turn(trials));
    CHECK(trials.watching());
    CHECK(trials.plan() == plan);
    CHECK(trials.candidates().empty());
    CHECK(trials.searches() == 0);
    CHECK(trials.searched_steps() == 0);
  }

  TEST_CASE("a plan that is reused and takes otherwise than it did is searched anew, and is a candidate") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    const MergeTrials::Plan plan{true, {{7}, {}}};
    trials.reuse(plan, m.takes(plan));
    m.turn(trials, false, 1.5);
    CHECK(trials.watching());
    m.turn(trials, false, 1.5);
    CHECK_FALSE(trials.watching());
    CHECK(trials.searches() == 1);
    const auto holds = [&](const MergeTrials& of) {
      return std::any_of(of.candidates().begin(), of.candidates().end(), [&](const auto& c) { return c.plan == plan; });
    };
    CHECK(holds(trials));
    CHECK(m.until_chosen(trials) > 0);
    CHECK(m.takes(trials.plan()) <= m.takes(plan));
    CHECK(trials.candidates().front().plan == MergeTrials::Plan{});  // what the others are compared with
    CHECK(trials.searched_steps() > 10);

    // It is chosen again where it is still the best: nothing else would propose these groups.
    MergeTrials again(m.step.bytes, anywhere(24));
    again.reuse(plan, 0.01);
    const auto turn = [&] {
      for (unsigned s = again.steps(); s > 0; --s)
        again.stepped(again.plan() == plan ? 0.5 : 1, std::vector<double>(24, -1), false);
      return again.next();
    };
    turn(), turn();
    REQUIRE_FALSE(again.watching());
    bool chosen = false;
    for (int turns = 0; turns < 200 && !chosen; ++turns) chosen = turn();
    CHECK(chosen);
    CHECK(again.plan() == plan);
  }

  TEST_CASE("a turn's first step, in which its plan is new, is no step of the plan's") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24));
    for (int turns = 0; turns < 200 && !trials.watching(); ++turns) {
      for (unsigned s = trials.steps(); s > 0; --s) m.run(trials, false, s == trials.steps() ? 50 : 1);
      trials.next();
    }
    REQUIRE(trials.watching());
    for (const auto& c : trials.candidates()) {
      REQUIRE_FALSE(c.steps_s.empty());
      for (const double s : c.steps_s) CHECK(s == m.takes(c.plan));
    }
  }

  TEST_CASE("calls of groups of as many bytes in different codecs say nothing of either") {
    const Machine m = machine();
    MergeTrials trials(m.step.bytes, anywhere(24), 2);
    const MergeTrials::Plan halves{true, {{12}, {0, 1}}};
    trials.reuse(halves, 1);
    int of_halves = 0;
    for (int turns = 0; turns < 200 && !(trials.watching() && of_halves); ++turns) {
      for (unsigned s = trials.steps(); s > 0; --s) {
        if (!trials.watching() && trials.plan() == halves)
          ++of_halves, trials.called(48'000'000, .01), trials.called(48'000'000, .1);
        trials.stepped(2, std::vector<double>(24, -1), false);
      }
      trials.next();
    }
    CHECK(of_halves > 0);
    for (const Curve& calls : trials.trace().calls) CHECK(calls.empty());
  }

  TEST_CASE("one tensor") {
    Machine m = machine();
    m.step.ready_s = {1e-3};
    m.step.bytes = {4000};
    MergeTrials trials(m.step.bytes, anywhere(1));
    CHECK(m.until_chosen(trials) > 0);
  }
}
