// A call is planned once for all that bring the same tensors.
#include "collective/call_plan.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <type_traits>

#include "collective/algorithms.hpp"
#include "collective/one_shot.hpp"
#include "core/error.hpp"

using namespace crimp;

TEST_SUITE("call_plan") {
  namespace {

  Settings settings_of(const std::string& codec, const std::string& rules) {
    Settings settings;
    settings.codec = codec;
    settings.rules = rules;
    return settings;
  }

  struct Plans {
    explicit Plans(const Settings& of) : settings(of), planner(settings, rules) {
      rules.read(settings, [](const std::string& text) { FAIL(text); });
    }
    std::shared_ptr<const CallPlan> of(const std::vector<std::string>& names, std::uint64_t each = 2000,
                                       Dtype dtype = Dtype::f32, int level = -1) {
      std::vector<Segment> segments;
      for (std::uint64_t i = 0; i < names.size(); ++i) segments.push_back({names[i], i * each, each});
      return planner.plan(dtype, names.size() * each, Layout::make(Layout::Source::named, segments), level);
    }
    Settings settings;
    CodecRules rules;
    Planner planner;
  };

  std::vector<std::string> codecs_of(const CallPlan& plan) {
    std::vector<std::string> all;
    for (const Codec* codec : plan.codecs) all.push_back(codec ? codec->spec() : "exactly");
    return all;
  }

  }  // namespace

  TEST_CASE("the second call of the same tensors plans nothing, and has the routes of the first") {
    Plans plans(settings_of("3lc", ""));
    const auto first = plans.of({"a", "b"});
    CHECK(plans.planner.made() == 1);
    CHECK(plans.of({"a", "b"}) == first);  // another Layout that says the same
    CHECK(plans.planner.made() == 1);
    REQUIRE(first->parts.size() == 1);
    const PlannedPart& part = first->parts[0];
    const auto route = part.route({.algorithm = Algorithm::allgather}, nullptr, 4);
    CHECK(plans.of({"a", "b"})->parts[0].route({.algorithm = Algorithm::allgather}, nullptr, 4) == route);
    CHECK(part.route({.algorithm = Algorithm::two_shot}, nullptr, 4) != route);
    CHECK(plans.planner.made() == 1);
    // Whatever else differs is another plan.
    CHECK(plans.of({"a", "c"}) != first);
    CHECK(plans.of({"a", "b"}, 2001) != first);
    CHECK(plans.of({"a", "b"}, 2000, Dtype::f16) != first);
    CHECK(plans.planner.made() == 4);
    CHECK(plans.of({"a", "b"}) == first);
    CHECK(plans.planner.made() == 4);
  }

  TEST_CASE("a call knows the frame of one exchange, and the longest that a rank without memory has a reserve for") {
    const auto frame = [](const char* codec, std::uint64_t each, int ranks) {
      Plans plans(settings_of(codec, ""));
      const auto plan = plans.of({"a", "b"}, each);
      const ChoiceQuery& query = plan->parts[0].query;
      const auto route = plan->parts[0].route({.algorithm = Algorithm::one_shot}, nullptr, ranks);
      if (query.frame_bytes) CHECK(query.frame_bytes == frame_bytes(*route));
      // What leaves and what arrives of all ranks, beside whatever else is insisted on.
      const AlgorithmEntry& entry = entry_of(Algorithm::one_shot);
      CHECK(entry.fits(query, ranks) ==
            (query.frame_bytes && query.frame_bytes * (static_cast<unsigned>(ranks) + 1) <= 512u << 10));
      CHECK(entry_of(Algorithm::allgather).fits(query, ranks));
      return query.frame_bytes;
    };
    // A header, and 2 bytes a value; fp16 has 8 more a piece.
    CHECK(frame("bf16", 20000, 2) == 64 + 2 * 40000);
    CHECK(frame("fp16", 20000, 3) >= 64 + 2 * 40000 + 4 * 8);
    CHECK(frame("bf16", 327680, 2) == 64 + 2 * 655360);
    for (const char* codec : {"3lc", "topk", "3lc:s=0.5,entropy=1", "8bit"})
      for (const std::uint64_t each : {17, 10240, 10241, 300000}) CHECK(frame(codec, each, 4) > 64);
    for (const char* codec : {"topk", "3lc"}) CHECK(frame(codec, 327681, 2) == 0);  // pieces end where chunks do
  }

  TEST_CASE("fp32 may stand in for a codec whose results are sums, where all ranks share a node") {
    const auto exact = [](const Settings& settings, int level = -1) {
      Plans plans(settings);
      const auto plan = plans.of({"a", "b"}, 20000, Dtype::f32, level);
      REQUIRE(plan->parts.size() >= 1);
      const ChoiceQuery& query = plan->parts[0].query;
      CHECK(query.exact == (plan->exactly != nullptr));
      if (!plan->exactly) return std::string("none");
      const Carriage on_node{.algorithm = Algorithm::node_sum, .nodes = true};
      CHECK(&plan->of(on_node) == plan->exactly.get());
      CHECK(plan->exactly->parts[0].query.codec == query.codec);
      CHECK_FALSE(plan->exactly->parts[0].plan.remembers);
      return plan->exactly->parts[0].plan.codec->spec();
    };
    for (const char* codec : {"3lc", "topk", "fp16", "fp32", "8bit:memory=residual", "qsgd"})
      CHECK(exact(settings_of(codec, "")) == "fp32");
    for (const char* codec : {"dgc", "signsgd", "signum", "powersgd", "fp16:memory=average", "3lc:gamma=0.5"})
      CHECK(exact(settings_of(codec, "")) == "none");
    Plans scaled(settings_of("3lc:gamma=0.5", ""));
    CHECK(scaled.of({"a", "b"})->means_more);  // nor by MPI, nor in 16 bits: results are gamma times the sums
    CHECK_FALSE(scaled.of({"a", "b"})->halves);
    Plans averages(settings_of("8bit:memory=average", ""));
    CHECK(averages.of({"a", "b"})->means_more);
    CHECK(exact(settings_of("3lc", "b=fp16")) == "none");
    CHECK(exact(settings_of("3lc", "b=none")) == "none");
    Settings controlled = settings_of("3lc", "");
    controlled.control = "delay";
    controlled.ladder = "fp16:memory=residual; 3lc";
    CHECK(exact(controlled, 1) == "none");
  }

  TEST_CASE("fp16 may stand in for a codec that keeps the same of tensors, in calls of nothing else") {
    const auto halves = [](const char* codec, const char* rules = "", bool feedback = true) {
      Settings settings = settings_of(codec, rules);
      settings.error_feedback = feedback;
      Plans plans(settings);
      const auto plan = plans.of({"a", "b"});
      REQUIRE(plan->parts.size() >= 1);
      const ChoiceQuery& query = plan->parts[0].query;
      CHECK((query.halves != nullptr) == (plan->halves != nullptr));
      if (!plan->halves) return std::string("none");
      CHECK_FALSE(plan->halves->halves);
      REQUIRE(plan->halves->parts.size() == 1);
      const PlannedPart& part = plan->halves->parts[0];
      CHECK(part.plan.codec == query.halves);
      CHECK(part.plan.remembers == plan->parts[0].plan.remembers);
      CHECK(part.query.codec == query.codec);  // whose times they are
      CHECK(plan->halves->scanned.size() == plan->scanned.size());
      CHECK(plan->halves->exact == plan->exact);
      CHECK(&plan->of({.halves = true}) == plan->halves.get());
      CHECK(&plan->of({}) == plan.get());
      CHECK(plan->footprint() > plan->halves->footprint());
      return part.plan.codec->spec();
    };
    const std::string kept = make_codec("fp16:memory=residual")->spec(), not_kept = make_codec("fp16")->spec();
    CHECK(halves("3lc") == kept);
    CHECK(halves("topk") == kept);
    CHECK(halves("qsgd:memory=none") == not_kept);
    CHECK(halves("3lc", "", false) == not_kept);  // CRIMP_ERROR_FEEDBACK=0: nothing is kept of either
    for (const char* codec : {"fp16", "fp16:memory=residual", "bf16", "fp32", "signsgd", "dgc", "powersgd:min=1"}) {
      CAPTURE(std::string(codec));
      CHECK(halves(codec) == "none");
    }
    CHECK(halves("3lc", "b*=8bit") == "none");
    CHECK(halves("3lc", "b*=none") == "none");  // half of the call is summed exactly
    // A level of CRIMP_LADDER is what the control has chosen; what it does not control is free.
    Settings controlled = settings_of("topk", "b=topk");
    controlled.control = "delay";
    controlled.ladder = "topk:ratio=0.1; topk:ratio=0.01";
    Plans plans(controlled);
    for (const int level : {0, 1}) {
      const auto plan = plans.of({"a"}, 2000, Dtype::f32, level);
      CHECK(plan->controlled);
      CHECK_FALSE(plan->halves);
      CHECK(plan->parts[0].query.halves == nullptr);
      CHECK(plans.of({"b"}, 2000, Dtype::f32, level)->halves);
    }
  }

  TEST_CASE("a level takes the place of CRIMP_CODEC, and of nothing else") {
    Settings settings = settings_of("3lc", "b*=8bit; c*=none");
    settings.control = "delay";
    settings.ladder = "fp16:memory=residual; 3lc ;3lc:s=1.9";
    Plans plans(settings);
    REQUIRE(plans.rules.ladder().size() == 3);
    CHECK(plans.rules.ladder_start() == 1);
    const std::string middle = plans.rules.codec()->spec(), eight = plans.rules.of_tensor("b", 2000)->spec();
    CHECK(codecs_of(*plans.of({"a", "b", "c"})) == std::vector<std::string>{middle, eight, "exactly"});
    for (int level = 0; level < 3; ++level) {
      const auto plan = plans.of({"a", "b", "c"}, 2000, Dtype::f32, level);
      CHECK(codecs_of(*plan) ==
            std::vector<std::string>{plans.rules.ladder()[static_cast<std::size_t>(level)]->spec(), eight, "exactly"});
      CHECK(plan->controlled);
      for (const PlannedPart& part : plan->parts) CHECK(part.query.controlled);
      CHECK(plans.of({"a", "b", "c"}, 2000, Dtype::f32, level) == plan);
      // Nothing that the control could change.
      CHECK_FALSE(plans.of({"b"}, 2000, Dtype::f32, level)->controlled);
      CHECK_FALSE(plans.of({""}, 2000, Dtype::f32, level)->controlled);
    }
    CHECK_FALSE(plans.of({"a"})->controlled);
    // Nor of a tensor whose codec the program has said.
    plans.planner.set_codec("a", "8bit");
    CHECK(codecs_of(*plans.of({"a", "d"}, 2000, Dtype::f32, 2)) ==
          std::vector<std::string>{eight, plans.rules.ladder()[2]->spec()});
    CHECK_FALSE(plans.of({"a"}, 2000, Dtype::f32, 2)->controlled);
    settings.codec = "auto";
    CHECK(Plans(settings).rules.codec()->spec() == "fp16:memory=residual");
    // A rule's codec stays, also where it is the first level's.
    settings.rules = "b*=fp16:memory=residual";
    CHECK(codecs_of(*Plans(settings).of({"a", "b"}, 2000, Dtype::f32, 2)) ==
          std::vector<std::string>{Plans(settings).rules.ladder()[2]->spec(), "fp16:memory=residual"});
    settings.codec = "none";
    CHECK_FALSE(Plans(settings).rules.codec());
  }

  TEST_CASE("patterns that no tensor comes to are known, with the name that the first one has") {
    const auto use = [](const std::string& rules, const std::vector<std::string>& names) {
      Settings settings = settings_of("3lc", "");
      settings.rules = rules;
      Plans plans(settings);
      if (!names.empty()) plans.of(names);
      return plans.rules.use();
    };
    using All = std::vector<std::string>;
    CHECK(use("fc*=none; <10=none; *=8bit:memory=residual", {"allreduce.fc1", "allreduce.fc2"}).idle == All{"fc*"});
    CHECK(use("fc*=none", {"allreduce.fc1", "allreduce.fc2"}).first == "allreduce.fc1");
    CHECK(use("*fc*=none; *fc1=fp16; *2=fp16", {"fc1", "fc2"}).idle == All{"*fc1", "*2"});  // the first rule took them
    CHECK(use("*fc*=none; *fc1=fp16", {"fc1"}).first == "fc1");
    CHECK(use("a=none; b=none", {"b", "a"}).idle.empty());
    CHECK(use("a=none", {}).first.empty());
    CHECK(use("", {"a"}).idle.empty());
  }

  TEST_CASE("a pattern that gives some names a codec says that they are gradients, one for all names does not") {
    Settings settings = settings_of("3lc", "*bias=none; *0.weight=8bit; >=1M=fp16; *=3lc");
    CodecRules rules;
    rules.read(settings, [](const std::string& text) { FAIL(text); });
    CHECK(rules.names_gradient("a.0.weight", 2000));
    CHECK_FALSE(rules.names_gradient("a.0.bias", 2000));
    CHECK_FALSE(rules.names_gradient("a.1.weight", 2000));
    CHECK_FALSE(rules.names_gradient("a.1.weight", 2000000));
    CHECK_FALSE(CodecRules().names_gradient("a.0.weight", 2000));
  }

  TEST_CASE("ladders that lose what waits, or are none, are refused by what to do") {
    const auto refusal = [](const char* ladder, const char* target = "10%", const char* control = "delay",
                            const char* codec = "auto") {
      Settings settings = settings_of(codec, "");
      settings.control = control;
      settings.ladder = ladder;
      settings.delay_target = target;
      std::string said;
      CodecRules rules;
      rules.read(settings, [&](const std::string& text) { said += text; });
      return said;
    };
    CHECK(refusal(Settings{}.ladder.c_str()) == "");
    CHECK(refusal("fp16; 8bit") == "");
    CHECK(refusal("fp16; 3lc").find("give all levels memory=residual") != std::string::npos);
    CHECK(refusal("3lc").find("has no two levels") != std::string::npos);
    CHECK(refusal(" ; ").find("has no two levels") != std::string::npos);
    CHECK(refusal("3lc; dgc").find("'dgc' cannot be a level") != std::string::npos);
    CHECK(refusal("3lc; signum").find("'signum' cannot be a level") != std::string::npos);
    CHECK(refusal("3lc; powersgd").find("'powersgd' cannot be a level") != std::string::npos);
    CHECK(refusal("3lc; 4lc").find("4lc") != std::string::npos);
    for (const char* other : {"fp16", "dgc", "signsgd"})
      CHECK(refusal(Settings{}.ladder.c_str(), "10%", "delay", other).find("leave CRIMP_CODEC out") !=
            std::string::npos);
    CHECK(refusal("3lc", "10%", "off") == "");  // nobody asks for it
    CHECK(refusal(Settings{}.ladder.c_str(), "10").find("CRIMP_DELAY_TARGET is '10', legal is N%") == 0);
  }

  TEST_CASE("who holds a plan keeps it as it was, whatever is said of codecs later") {
    Plans plans(settings_of("3lc", ""));
    const auto held = plans.of({"a", "b"});
    static_assert(std::is_same_v<decltype(held)::element_type, const CallPlan>);
    const auto codecs = codecs_of(*held);
    const auto route = held->parts[0].route({.algorithm = Algorithm::allgather}, nullptr, 3);
    const std::uint64_t bytes = route->bytes({}).together;
    plans.planner.set_codec("b", "fp16");
    const auto changed = plans.of({"a", "b"});
    CHECK(changed != held);
    CHECK(changed->parts.size() == 2);
    CHECK(codecs_of(*changed) == std::vector<std::string>{codecs[0], changed->codecs[1]->spec()});
    CHECK(changed->codecs[1]->spec().starts_with("fp16"));
    plans.planner.set_codec("b", "fp16");  // again
    CHECK(plans.of({"a", "b"}) == changed);
    plans.planner.set_codec("*", nullptr);
    CHECK(codecs_of(*plans.of({"a", "b"})) == codecs);
    CHECK(plans.planner.made() == 3);
    CHECK(codecs_of(*held) == codecs);
    CHECK(held->parts.size() == 1);
    CHECK(held->parts[0].route({.algorithm = Algorithm::allgather}, nullptr, 3) == route);
    CHECK(route->bytes({}).together == bytes);
    CHECK(route->part.codec == held->codecs[0]);
  }

  TEST_CASE("what is said of several patterns in every step changes nothing, unless a name matches two of them") {
    Plans plans(settings_of("3lc", ""));
    std::shared_ptr<const CallPlan> plan;
    for (int step = 0; step < 4; ++step) {
      plans.planner.set_codec("ab*", "topk");
      plans.planner.set_codec("ba", "fp16");
      plans.planner.set_codec("c[0-9]", "8bit");
      const auto now = plans.of({"ab1", "ba", "c5"});
      CHECK((!plan || now == plan));
      plan = now;
    }
    CHECK(plans.planner.made() == 1);
    const auto of = [&](const char* name) { return codecs_of(*plans.of({name}))[0].substr(0, 4); };
    plans.planner.set_codec("*1", "fp16");
    CHECK(of("ab1") == "fp16");
    plans.planner.set_codec("ab*", "topk");
    CHECK(of("ab1") == "topk");
    plans.planner.set_codec("ba", nullptr);
    CHECK(of("ba") == "3lc:");
  }

  TEST_CASE("CRIMP_CODEC=auto that becomes a codec ends the plans that were made without") {
    Plans plans(settings_of("auto", "b*=fp16"));
    CHECK(codecs_of(*plans.of({"a", "b"}))[0] == "exactly");
    plans.rules.choose("3lc");
    CHECK(codecs_of(*plans.of({"a", "b"}))[0].starts_with("3lc"));
  }

  TEST_CASE("no more plans are kept than a thousand, and none of too many bytes") {
    Plans plans(settings_of("3lc", ""));
    std::size_t most = 0;
    for (std::uint64_t n = 0; n < 2 * Planner::kMostPlans + 7; ++n) {
      plans.of({"a", "b"}, 2000 + n);
      most = std::max(most, plans.planner.kept());
    }
    CHECK(most == Planner::kMostPlans);
    CHECK(plans.planner.made() == 2 * Planner::kMostPlans + 7);
    const auto last = plans.of({"a", "b"}, 2000 + 2 * Planner::kMostPlans + 6);
    CHECK(plans.planner.made() == 2 * Planner::kMostPlans + 7);  // the last is kept
    // A training that has a few more kinds of calls finds most of them again.
    Plans again(settings_of("3lc", ""));
    constexpr std::uint64_t kKinds = Planner::kMostPlans + 76;
    for (std::uint64_t step = 0; step < 5; ++step)
      for (std::uint64_t n = 0; n < kKinds; ++n) again.of({"a", "b"}, 2000 + n);
    CHECK(again.planner.made() < 2 * kKinds);

    // What they take is known all the time, with what calls add to plans, and without those that are gone.
    Plans some(settings_of("fp16", ""));
    std::map<std::uint64_t, std::shared_ptr<const CallPlan>> seen;
    for (const std::uint64_t n : {1, 2, 3, 1, 1, 4}) {
      seen[n] = some.of({"a", "b"}, 2000 * n);
      for (int i = 0; i < static_cast<int>(n); ++i)
        seen[n]->parts[0].route({.algorithm = Algorithm::allgather, .chunk_setting = 10240u << i}, nullptr, 2);
    }
    std::uint64_t bytes = some.of({"a", "b"}, 10000)->footprint();
    for (const auto& [_, plan] : seen) bytes += plan->footprint();
    CHECK(some.planner.bytes() == bytes);
    some.planner.set_codec("a", "bf16");
    CHECK(some.planner.bytes() == 0);
    CHECK(again.planner.kept() == Planner::kMostPlans);
    const std::uint64_t each = again.planner.bytes() / Planner::kMostPlans;
    CHECK(each > sizeof(CallPlan));
    CHECK(each < 10 * sizeof(CallPlan));

    std::vector<std::string> names;
    for (int i = 0; i < 20000; ++i) names.push_back("tensor" + std::to_string(i));
    const auto bytes_of = [&](const std::string& codec) {
      Plans wide(settings_of(codec, ""));
      for (std::uint64_t n = 0; n < 60; ++n)
        if (const auto plan = wide.of(names, 1 + n); !plan->parts.empty())
          plan->parts[0].route({.algorithm = Algorithm::allgather}, nullptr, 2);
      return wide.planner.kept() * wide.of(names, 60)->footprint();
    };
    // One more may be made than fits.
    CHECK(bytes_of("fp16") < Planner::kMostBytes + (Planner::kMostBytes >> 3));
    CHECK(bytes_of("none") < Planner::kMostBytes + (Planner::kMostBytes >> 3));  // MPI's, without routes
  }

  TEST_CASE("rules whose codecs have one canonical text are one collective") {
    Plans plans(settings_of("3lc", "a*=3lc; b*=3lc:s=1; c*=3lc:zero_run=1,s=1; d*=3lc:s=1.5; e*=none"));
    const auto plan = plans.of({"a1", "b1", "c1", "d1", "e1", "f1"});
    REQUIRE(plan->parts.size() == 2);
    CHECK(plan->part_of[0] == 0);
    CHECK(plan->part_of[1] == 0);
    CHECK(plan->part_of[2] == 0);
    CHECK(plan->part_of[3] == 1);
    CHECK(plan->part_of[5] == 0);
    CHECK(plan->exact == std::vector<std::size_t>{4});
    CHECK(plan->exact_bytes == 2000 * sizeof(float));
    CHECK(plan->parts[0].query.count == 8000);
    CHECK(plan->parts[1].query.count == 2000);
    for (const Dtype dtype : {Dtype::f16, Dtype::f64}) {
      const auto other = plans.of({"a1", "b1", "c1", "d1", "e1", "f1"}, 2000, dtype);
      CHECK(other->exact_bytes == 2000 * size_of(dtype));
      CHECK(other->parts[0].query.plain_bytes == 8000 * size_of(dtype));
    }
    // What the program says is the same codec, too.
    plans.planner.set_codec("d*", "3lc:s=1");
    CHECK(plans.of({"a1", "b1", "c1", "d1", "e1", "f1"})->parts.size() == 1);
  }

  TEST_CASE("what lies at the ends of a tensor that is known by its values is summed exactly") {
    Plans plans(settings_of("3lc", ""));
    const auto plan = plans.planner.plan(
        Dtype::f32, 5000, Layout::make(Layout::Source::periodic, {{"", 0, 16}, {"#0.0.0", 16, 4968}, {"", 4984, 16}}),
        -1);
    CHECK(codecs_of(*plan) == std::vector<std::string>{"exactly", plans.rules.codec()->spec(), "exactly"});
    CHECK(plan->exact == std::vector<std::size_t>{0, 2});
    CHECK(plan->exact_bytes == 2 * 16 * sizeof(float));
  }

  TEST_CASE("a momentum is kept where error feedback is, and nowhere else") {
    for (const bool feedback : {true, false}) {
      Settings settings = settings_of("dgc", "b=none");
      settings.error_feedback = feedback;
      Plans plans(settings);
      const auto plan = plans.of({"a", "b"});
      CHECK(plan->has_momentum() == feedback);
      CHECK(plan->means_more == feedback);
    }
  }

  TEST_CASE("what is said to be no parameter has no momentum, alone or beside others") {
    Plans plans(settings_of("dgc", "*accuracy=none:memory=none; *bias=none"));
    const auto moves = [](const CallPlan& plan) {
      std::vector<bool> all;
      for (const Codec* codec : plan.momenta) all.push_back(codec != nullptr);
      return all;
    };
    const auto mixed = plans.of({"weight", "bias", "accuracy"});
    CHECK(codecs_of(*mixed) == std::vector<std::string>{plans.rules.codec()->spec(), "exactly", "exactly"});
    CHECK(moves(*mixed) == std::vector<bool>{true, true, false});
    CHECK(mixed->exact == std::vector<std::size_t>{1, 2});
    CHECK(moves(*plans.of({"bias", "accuracy"})) == std::vector<bool>{true, false});
    const auto alone = plans.of({"accuracy"});
    CHECK(alone->pass == PassReason::rules);
    CHECK_FALSE(alone->has_momentum());
    CHECK_FALSE(alone->means_more);
    // What the program says comes ahead of that.
    plans.planner.set_codec("accuracy", "none");
    CHECK(plans.of({"accuracy"})->has_momentum());
    plans.planner.set_codec("accuracy", nullptr);
    CHECK_FALSE(plans.of({"accuracy"})->has_momentum());
  }

  TEST_CASE("the tensors of a part are summed in it, and no others") {
    Plans plans(settings_of("3lc", "b*=fp16; c*=none"));
    const auto plan = plans.of({"a", "b", "c", "d"});
    REQUIRE(plan->parts.size() == 2);
    for (std::size_t p = 0; p < 2; ++p)
      for (std::size_t s = 0; s < 4; ++s) {
        const Segment& segment = plan->parts[p].plan.layout->segments[s];
        CHECK(segment.summed() == (plan->codecs[s] == plan->parts[p].plan.codec));
        CHECK(segment.key == plan->layout->segments[s].key);
      }
    CHECK(plan->scanned.size() == 3);
  }
}
