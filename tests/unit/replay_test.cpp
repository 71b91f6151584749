// CRIMP_REPLAY: what is recorded of calls, what a file says of them, and what is taken from it.
#include "collective/replay.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "collective/call_choice.hpp"
#include "core/build_id.hpp"
#include "core/error.hpp"
#include "core/report.hpp"
#include "schedule/delay_control.hpp"
#include "support/compare.hpp"
#include "support/thread_transport.hpp"

using namespace crimp;
using namespace crimp::test;
using nlohmann::json;

TEST_SUITE("replay") {
  namespace {

  struct Plans {
    explicit Plans(const std::string& codec) : planner(settings, rules) {
      settings.codec = codec;
      settings.rules = "b*=8bit";
      rules.read(settings, [](const std::string& text) { FAIL(text); });
    }
    std::shared_ptr<const CallPlan> of(const std::vector<std::string>& names, std::uint64_t each = 2000) {
      std::vector<Segment> segments;
      for (std::uint64_t i = 0; i < names.size(); ++i) segments.push_back({names[i], i * each, each});
      return planner.plan(Dtype::f32, names.size() * each, Layout::make(Layout::Source::named, segments));
    }
    Settings settings;
    CodecRules rules;
    Planner planner;
  };

  ChosenParts passes(PassReason why) {
    ChosenParts chosen;
    chosen.pass = why;
    return chosen;
  }

  ChosenParts takes(const std::vector<Carriage>& carriages) {
    ChosenParts chosen;
    for (const Carriage& carriage : carriages) chosen.choices.push_back({.carriage = carriage});
    return chosen;
  }

  const ChosenParts kEarly = passes(PassReason::early);
  const ChosenParts kGather = takes({{.algorithm = Algorithm::allgather, .chunk_setting = 655360, .radix = 1}});
  const ChosenParts kTwoShot = takes({{.algorithm = Algorithm::two_shot, .chunk_setting = 40960, .radix = 3}});
  const ChosenParts kNodes = takes({{.algorithm = Algorithm::two_shot, .nodes = true, .chunk_setting = 40960}});

  void record(DecisionRecorder& recorder, const CallPlan& plan, const std::vector<ChosenParts>& calls) {
    for (const ChosenParts& chosen : calls) {
      recorder.begin(plan);
      recorder.decided(plan, chosen);
    }
  }

  // The file that a job of one communicator on 4 ranks writes.
  json file_of(const DecisionRecorder& recorder) {
    Report report;
    report.decisions(recorder.record().json());
    return json::parse(Report::of_job(Settings{}, 4, "none", "on", {report.json(), Report().json()}));
  }

  Replay parsed(const json& file, std::vector<std::string>* warnings = nullptr, const Settings& settings = {},
                int ranks = 4) {
    std::vector<std::string> all;
    Replay replay = Replay::parse("r.json", file.dump(), settings, ranks, all);
    if (warnings) {
      *warnings = all;
    } else {
      for (const std::string& text : all) FAIL_CHECK(text);
    }
    return replay;
  }

  std::string refusal(const std::string& content, int ranks = 4) {
    std::vector<std::string> warnings;
    try {
      Replay::parse("r.json", content, {}, ranks, warnings);
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::option_invalid);
      CHECK(has(e.what(), "CRIMP_REPLAY is 'r.json', "));
      CHECK(has(e.what(), "Give the file that CRIMP_REPORT wrote"));
      return e.what();
    }
    return "";
  }

  }  // namespace

  TEST_CASE("ranks as a text") {
    CHECK(ranks_text({}) == "");
    CHECK(ranks_text({0, 1, 2, 3}) == "0-3");
    CHECK(ranks_text({3, 2, 1}) == "3,2,1");
    CHECK(ranks_text({0, 1, 5, 7, 8, -1, 0}) == "0-1,5,7-8,-1,0");
  }

  TEST_CASE("a kind says type, elements, and of each part codec and elements: not which tensors they are") {
    Plans plans("fp16");
    const auto plan = plans.of({"a", "b"});
    REQUIRE(plan->parts.size() == 2);
    CHECK(plan->kind == "float32 x 4000: fp16 x 2000 + " + plan->parts[1].query.codec->spec() + " x 2000");
    CHECK(plans.of({"c", "b"})->kind_digest == plan->kind_digest);
    CHECK(plans.of({"b", "c"})->kind_digest != plan->kind_digest);
    CHECK(plans.of({"a", "c"})->kind_digest != plan->kind_digest);
    CHECK(plans.of({"a", "b"}, 2001)->kind_digest != plan->kind_digest);
    CHECK(Plans("bf16").of({"a", "b"})->kind_digest != plan->kind_digest);
  }

  TEST_CASE("changes alone are kept, and a replay finds each call's decision; behind the end the last one stays") {
    Plans plans("fp16");
    const auto plan = plans.of({"a"}), other = plans.of({"a", "c"});
    const std::vector<ChosenParts> calls{kEarly, kEarly, kTwoShot, kGather, kGather, kNodes, kGather};
    DecisionRecorder recorder("0-3", 2);
    record(recorder, *plan, calls);
    record(recorder, *other, {kGather, passes(PassReason::slower)});
    CHECK(recorder.record().kinds.at(plan->kind_digest).of.runs.size() == 5);
    const Replay replay = parsed(file_of(recorder));
    CHECK(replay.find("0-3", 1) == nullptr);
    CHECK(replay.find("0-2", 2) == nullptr);
    REQUIRE(replay.find("0-3", 2));

    ReplayedCalls replayed(replay.find("0-3", 2));
    DecisionRecorder again("0-3", 2);
    for (std::size_t i = 0; i < calls.size() + 3; ++i) {
      const ChosenParts& was = calls[std::min(i, calls.size() - 1)];
      const auto [decision, how] = replayed.call(plan->kind_digest);
      CHECK(how == (i < calls.size() ? Report::Repeat::recorded : Report::Repeat::beyond));
      REQUIRE(decision);
      CHECK(decision->pass == was.pass);
      if (was.pass) continue;
      REQUIRE(decision->parts.size() == 1);
      CHECK(decision->parts[0] == was.choices[0].carriage);
    }
    CHECK(replayed.call(other->kind_digest).decision->parts[0].algorithm == Algorithm::allgather);
    CHECK(replayed.call(other->kind_digest).decision->pass == PassReason::slower);
    CHECK(replayed.call(12345).decision == nullptr);
    CHECK(replayed.call(12345).how == Report::Repeat::missing);
    CHECK(ReplayedCalls(nullptr).call(plan->kind_digest).how == Report::Repeat::missing);
  }

  TEST_CASE("calls that pass unseen are known before they are counted") {
    Plans plans("fp16");
    const auto plan = plans.of({"a"});
    const std::uint64_t kind = plan->kind_digest;
    DecisionRecorder recorder("0-3", 0);
    record(recorder, *plan, {kGather, passes(PassReason::slower), passes(PassReason::slower)});
    for (int call = 0; call < 4; ++call) recorder.unseen(kind);
    record(recorder, *plan, {passes(PassReason::slower)});
    recorder.unseen(kind);
    CHECK(recorder.record().kinds.at(kind).of.runs.size() == 5);
    CHECK_FALSE(recorder.record().incomplete);
    const Replay replay = parsed(file_of(recorder));
    ReplayedCalls replayed(replay.find("0-3", 0));
    for (const bool unseen : {false, false, false, true, true, true, true, false, true, true, true}) {
      CHECK(replayed.passes_unseen(kind) == unseen);
      CHECK(replayed.passes_unseen(kind) == unseen);
      CHECK(replayed.call(kind).decision->unseen == unseen);
    }
    CHECK_FALSE(replayed.passes_unseen(12345));
    CHECK_FALSE(ReplayedCalls(nullptr).passes_unseen(kind));
  }

  TEST_CASE("what a choice leaves open is recorded as the settings have it") {
    Plans plans("fp16");
    plans.settings.chunk = 20480;
    plans.settings.radix = 4;
    const auto plan = plans.of({"a"});
    DecisionRecorder recorder("0-3", 0);
    record(recorder, *plan, {takes({{.algorithm = Algorithm::two_shot}})});
    CHECK(recorder.record().kinds.at(plan->kind_digest).of.runs[0].decision.parts[0] ==
          Carriage{Algorithm::two_shot, false, 20480, 4});
  }

  TEST_CASE("levels, by class and by call") {
    DecisionRecorder recorder("0-3", 0);
    const std::vector<int> levels{0, 0, 3, 3, 1, 1, 1, 6};
    for (const int level : levels) recorder.level(65536, level);
    recorder.level(1 << 20, 5);
    const Replay replay = parsed(file_of(recorder));
    ReplayedCalls replayed(replay.find("0-3", 0));
    for (const int level : levels) CHECK(replayed.level(65536, 7) == level);
    CHECK(replayed.level(65536, 7) == 6);
    CHECK(replayed.level(1 << 20, 7) == 5);
    CHECK(replayed.level(1 << 22, 7) == std::nullopt);
    CHECK(replayed.level(65536, 6) == std::nullopt);  // of a longer ladder
    ReplayedCalls shorter(replay.find("0-3", 0));
    for (const int level : levels) CHECK(shorter.level(65536, 6) == (level < 6 ? std::optional(level) : std::nullopt));
  }

  TEST_CASE("a control that follows decides nothing by itself") {
    DelayControl control(4, DelayTarget{0, 1}, 0.9);
    const auto begun = Clock::time_point();
    for (int call = 0; call < 40; ++call) {
      control.follow(100000, call < 20 ? 1 : 3);
      DelayNotes notes;
      notes.add({DelayNote::coded(1000), 900 | DelayNote::kLossy});
      control.ended(100000, begun, notes, 1, 0.01);
      CHECK(control.level(100000, 0) == (call < 20 ? 1 : 3));
    }
    CHECK(control.changes() == 1);
    REQUIRE(control.decisions().size() == 1);
    CHECK(control.decisions()[0].call == 20);
    CHECK(control.classes().begin()->second.calls_at == std::vector<std::uint64_t>{0, 20, 0, 20});
    CHECK(DelayControl::class_of(100000) == 65536);
    CHECK(DelayControl::class_of(65535) == 16384);
  }

  TEST_CASE("beyond so many changes none is kept, and the file says from where on") {
    Plans plans("fp16");
    const auto plan = plans.of({"a"});
    DecisionRecorder recorder("0-3", 0);
    recorder.level(65536, 1);
    for (std::size_t call = 1; call < DecisionRecorder::kMostRuns + 100; ++call)
      record(recorder, *plan, {call % 2 ? kGather : kTwoShot});
    recorder.level(65536, 2);
    recorder.level(65536, 1);
    CHECK(recorder.record().kinds.at(plan->kind_digest).of.runs.size() == DecisionRecorder::kMostRuns - 1);
    std::vector<std::string> warnings;
    const Replay replay = parsed(file_of(recorder), &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(has(warnings[0], "the calls 'float32 x 2000: fp16 x 2000' on ranks 0-3 ends with call 65535, and 1 more"));
    ReplayedCalls replayed(replay.find("0-3", 0));
    for (std::size_t call = 1; call < DecisionRecorder::kMostRuns + 100; ++call) {
      const auto [decision, how] = replayed.call(plan->kind_digest);
      const bool kept = call < DecisionRecorder::kMostRuns;
      if ((how == Report::Repeat::recorded) != kept) FAIL_CHECK(call);
      if (decision->parts[0].algorithm != (call % 2 || !kept ? Algorithm::allgather : Algorithm::two_shot))
        FAIL_CHECK(call);
    }
    CHECK(replayed.level(65536, 7) == 1);
    CHECK(replayed.level(65536, 7) == 1);
  }

  TEST_CASE("many communicators: those that are not in the file are counted there") {
    Report report;
    for (std::uint64_t i = 0; i < 1100; ++i)
      report.decisions(report.has_room() ? DecisionRecorder("0-3", i).record().json() : "");
    const json file = json::parse(Report::of_job(Settings{}, 4, "none", "on", {report.json()}));
    CHECK(file["per_rank"][0]["decisions"].size() == 1024);
    CHECK(file["per_rank"][0]["decisions"][1023]["number"] == 1023);
    CHECK(file["per_rank"][0]["decisions_left_out"] == 76);
    std::vector<std::string> warnings;
    parsed(file, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(has(warnings[0], "does not have 76 communicators"));
  }

  TEST_CASE("merge plans are those of the rank that decided them") {
    const auto of = [](const std::string& name) {
      PlanTurns turns{{name, "other"}, {}};
      turns.add({}, 3);
      return turns;
    };
    json file = file_of(DecisionRecorder("0-3", 0));
    for (const int rank : {0, 1}) {
      json& plans = file["per_rank"][static_cast<std::size_t>(rank)]["horovod"]["merge"]["plans"];
      plans = json::array({json::parse(of("of rank " + std::to_string(rank)).json())});
    }
    std::vector<std::string> warnings;
    const Replay replay = parsed(file, &warnings);
    for (const int rank : {0, 1}) {
      CAPTURE(rank);
      REQUIRE(replay.plans(rank).size() == 1);
      CHECK(replay.plans(rank)[0] == of("of rank " + std::to_string(rank)));
    }
    CHECK(replay.plans(2).empty());
  }

  TEST_CASE("files that are none of this job's reports are refused, with what is wrong") {
    Plans plans("fp16");
    DecisionRecorder recorder("0-3", 0);
    record(recorder, *plans.of({"a"}), {kEarly, kGather});
    recorder.level(65536, 1);
    const json file = file_of(recorder);
    const std::string text = file.dump();
    CHECK(refusal(text) == "");
    CHECK(has(refusal(""), "no JSON"));
    CHECK(has(refusal(text.substr(0, text.size() / 2)), "ends too early"));
    CHECK(has(refusal("[]"), "no report of Crimp's"));
    CHECK(has(refusal("{\"crimp\": 1}"), "no report of Crimp's"));
    CHECK(has(refusal(text, 3), "the report of a job of 4 ranks, and this job has 3"));
    json old = file;
    for (json& rank : old["per_rank"]) rank.erase("decisions");
    CHECK(has(refusal(old.dump()), "a report without decisions"));
    const auto nodes_with = [&](const char* algorithm, bool nodes) {
      json part = file["per_rank"][0]["decisions"][0]["kinds"][0]["from"][1]["parts"][0];
      part["algorithm"] = algorithm, part["nodes"] = nodes;
      return part;
    };
    // Each of these is one change of what is legal.
    const std::pair<const char*, json> odd[] = {
        {"/ranks", "4"},
        {"/per_rank/0/decisions", json::object()},
        {"/per_rank/0/decisions_left_out", -1},
        {"/per_rank/0/decisions/0/ranks", 3},
        {"/per_rank/0/decisions/0/number", nullptr},
        {"/per_rank/0/decisions/0/incomplete", 1},
        {"/per_rank/0/decisions/0/kinds", "none"},
        {"/per_rank/0/decisions/0/kinds/0", json::array()},
        {"/per_rank/0/decisions/0/kinds/0/kind", 7},
        {"/per_rank/0/decisions/0/kinds/0/calls", 1},
        {"/per_rank/0/decisions/0/kinds/0/truncated", true},
        {"/per_rank/0/decisions/0/kinds/0/from/0/call", 0},
        {"/per_rank/0/decisions/0/kinds/0/from/1/call", 1},
        {"/per_rank/0/decisions/0/kinds/0/from/0/passes", "off"},
        {"/per_rank/0/decisions/0/kinds/0/from/0/passes", 1},
        {"/per_rank/0/decisions/0/kinds/0/from/0/unseen", 0},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts", json::array()},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/algorithm", "telepathy"},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/algorithm", "hierarchical"},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/nodes", "no"},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0", nodes_with("reduce_scatter", true)},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0", nodes_with("node_sum", false)},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/chunk", 10241},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/chunk", 1e300},
        {"/per_rank/0/decisions/0/kinds/0/from/1/parts/0/radix", 1 << 20},
        {"/per_rank/0/decisions/0/levels/0/from/0/level", -1},
        {"/per_rank/0/decisions/0/levels/0/from_bytes", "65536"},
        {"/per_rank/1/decisions", file["per_rank"][0]["decisions"]},
    };
    for (const auto& [place, value] : odd) {
      const std::string at = place;
      CAPTURE(at);
      json changed = file;
      REQUIRE(changed.contains(json::json_pointer(place)));
      changed[json::json_pointer(place)] = value;
      CHECK(refusal(changed.dump()) != "");
    }
    // Nested without end, which takes the stack of whoever prints or copies it.
    for (const char* at : {"/per_rank/0/horovod/merge/plans/0", "/settings/CRIMP_CODEC", "/build"}) {
      CAPTURE(at);
      json changed = file;
      changed[json::json_pointer(at)] = "@";
      std::string deep = changed.dump();
      deep.replace(deep.find("\"@\""), 3, std::string(300'000, '[') + std::string(300'000, ']'));
      CHECK(has(refusal(deep), "no JSON"));
    }
    // Whatever a byte is turned into, it is read or refused.
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ (1 << at % 7));
      std::vector<std::string> warnings;
      try {
        const Replay replay = Replay::parse("r.json", changed, {}, 4, warnings);
        ReplayedCalls replayed(replay.find("0-3", 0));
        for (int call = 0; call < 3; ++call) (void)replayed.call(plans.of({"a"})->kind_digest);
      } catch (const Error& e) {
        CHECK(e.code() == ErrorCode::option_invalid);
      }
    }
  }

  TEST_CASE("other settings than the job's are told, those apart that a replay does not ask") {
    DecisionRecorder recorder("0-3", 0);
    const json file = file_of(recorder);
    Settings settings;
    settings.algorithm = "two_shot", settings.log = LogLevel::off, settings.quality = 1, settings.report = "x";
    parsed(file, nullptr, settings);
    settings.codec = "3lc", settings.min_count = 7;
    std::vector<std::string> warnings;
    parsed(file, &warnings, settings);
    REQUIRE(warnings.size() == 1);
    CHECK(has(warnings[0], "CRIMP_CODEC was 'auto', and is '3lc'; CRIMP_MIN_COUNT was '16384', and is '7'"));
    json other = file;
    other["build"] = "another";
    parsed(other, &warnings);
    REQUIRE(warnings.size() == 1);
    CHECK(has(warnings[0], "another build of Crimp"));
  }

  TEST_CASE("ranks with other contents differ in their settings' text") {
    DecisionRecorder recorder("0-3", 0);
    const json file = file_of(recorder);
    json other = file;
    other["status"] = "off";
    CHECK(parsed(file).digest() == parsed(file).digest());
    CHECK(parsed(file).digest() != parsed(other).digest());
  }

  TEST_CASE("CRIMP_ALGORITHM of the recorded job, of a replay's report of the job that it repeated") {
    DecisionRecorder recorder("0-3", 0);
    json file = file_of(recorder);
    std::vector<std::string> unsaid;
    const auto algorithm = [&] { return parsed(file, &unsaid).algorithm(); };
    CHECK(algorithm() == "auto");
    file["settings"]["CRIMP_ALGORITHM"] = "allgather";
    CHECK(algorithm() == "allgather");
    CHECK(parsed(file, &unsaid).repeated_json() == R"({"CRIMP_ALGORITHM":"allgather"})");
    file["per_rank"][1][Replay::kRepeated] = json::parse(R"({"CRIMP_ALGORITHM":"one_shot"})");
    CHECK(algorithm() == "one_shot");
    // Where a file does not say it, or nothing that is legal.
    for (const json& odd : {json("telepathy"), json(3), json()}) {
      file["per_rank"][1][Replay::kRepeated]["CRIMP_ALGORITHM"] = odd;
      CHECK(algorithm() == "allgather");
    }
    file["per_rank"][1][Replay::kRepeated] = 3;
    CHECK(algorithm() == "allgather");
    file["settings"]["CRIMP_ALGORITHM"] = "telepathy";
    CHECK(algorithm().empty());
    file["settings"] = 3;
    CHECK(algorithm().empty());
    file.erase("settings");
    CHECK(algorithm().empty());
  }

  TEST_CASE("repeated: what ran before, or the codec's first algorithm where it cannot") {
    Plans plans("fp16"), low_rank("powersgd:min=1");
    const auto plan = plans.of({"a"}), two = plans.of({"a", "b"});
    Chooser chooser("two_shot");
    int opened = 0;
    chooser.set_nodes([&]() -> const Hierarchy* { return ++opened, nullptr; });
    bool repeated = false;
    const auto again = [&](const CallPlan& of, const CallDecision* decision) {
      return repeat(chooser, of, 4, decision, &repeated);
    };
    const CallDecision early{.pass = PassReason::early}, direct{.parts = {{Algorithm::two_shot, false, 20480, 1}}},
        nodes{.parts = {{Algorithm::two_shot, true, 0, 1}}}, integers{.parts = {{Algorithm::homomorphic, false, 0, 1}}};
    CHECK(again(*plan, &early).pass == PassReason::early);
    CHECK(repeated);
    auto chosen = again(*plan, &direct);
    CHECK(repeated);
    CHECK_FALSE(chosen.pass);
    CHECK(chosen.choices[0].carriage.algorithm == Algorithm::two_shot);
    CHECK(std::string(chosen.choices[0].why) == "CRIMP_REPLAY");
    CHECK(chosen.routes.at(0) == plan->parts[0].route(chosen.choices[0].carriage, nullptr, 4));
    // CRIMP_ALGORITHM is not asked.
    for (const CallDecision* decision : {static_cast<const CallDecision*>(nullptr), &nodes, &integers}) {
      chosen = again(*plan, decision);
      CHECK_FALSE(repeated);
      CHECK(chosen.choices[0].carriage.algorithm == Algorithm::allgather);
      CHECK(chosen.routes.size() == 1);
    }
    CHECK(opened == 1);
    CHECK(again(*two, &direct).choices.size() == 2);  // of another number of parts
    CHECK_FALSE(repeated);
    // In 16 bits, where the codec lets them stand in for it.
    Plans lossy("3lc");
    const auto in_halves = lossy.of({"a"});
    const CallDecision halves{.parts = {{Algorithm::two_shot, false, 0, 1, true}}};
    chosen = again(*in_halves, &halves);
    CHECK(repeated);
    CHECK(chosen.choices[0].carriage.halves);
    CHECK(chosen.routes.at(0) == in_halves->halves->parts[0].route(chosen.choices[0].carriage, nullptr, 4));
    CHECK(chosen.routes[0]->part.codec->spec() == make_codec("fp16:memory=residual")->spec());
    CHECK_FALSE(again(*plan, &halves).choices[0].carriage.halves);
    CHECK_FALSE(repeated);
    DecisionRecorder recorder("0-3", 0);
    recorder.begin(*in_halves);
    recorder.decided(*in_halves, takes({{.algorithm = Algorithm::two_shot, .radix = 1, .halves = true}}));
    recorder.begin(*in_halves);
    recorder.decided(*in_halves, takes({{.algorithm = Algorithm::two_shot, .radix = 1}}));
    const Replay read = parsed(file_of(recorder));
    ReplayedCalls calls(read.find("0-3", 0));
    CHECK(calls.call(in_halves->kind_digest).decision->parts.at(0).halves);
    CHECK_FALSE(calls.call(in_halves->kind_digest).decision->parts.at(0).halves);
    CHECK(again(*low_rank.of({"a"}), &direct).choices[0].carriage.algorithm == Algorithm::low_rank);
    CHECK_FALSE(repeated);
  }
}
