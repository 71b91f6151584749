// Traces of steps: what is recorded of a program with a clock of our own, and what the timeline makes of it.
#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "schedule/step_recorder.hpp"
#include "schedule/step_trace.hpp"

using namespace crimp;

TEST_SUITE("step_trace") {
  namespace {

  std::shared_ptr<const Layout> named(const std::string& name, std::uint64_t count) {
    return Layout::make(Layout::Source::named, {{name, 0, count}});
  }

  // A program that computes, calls, computes, calls: a call takes 1 ms and 1 ns a byte.
  struct Program {
    StepRecorder recorder;
    double now_s = 100;
    static double call_s(std::uint64_t bytes) { return 1e-3 + 1e-9 * static_cast<double>(bytes); }
    void call(const char* tensor, std::uint64_t bytes, double computing_s) {
      now_s += computing_s;
      const double begin_s = now_s;
      now_s += call_s(bytes);
      recorder.called(named(tensor, bytes / 4), bytes, begin_s, now_s);
    }
    void step() {
      call("c", 4'000'000, .010);
      call("b", 1'000'000, .005);
      call("a", 2'000'000, .007);
    }
  };

  StepTrace small_trace() {
    StepTrace trace;
    trace.tensors = {"w", "b", "v"};
    trace.units = {{2, 3000, .5}, {1, 1000, .75}};
    Curve line;
    line.add(0, .25), line.add(4000, .5);
    trace.calls = {line, {}};
    trace.step_s = 2;
    trace.steps = 7;
    return trace;
  }

  }  // namespace

  TEST_CASE("a step is its calls, when they began in the program's own time, and what calls of their sizes took") {
    Program program;
    for (int i = 0; i < 10; ++i) program.step();
    const auto trace = program.recorder.trace();
    REQUIRE(trace);
    CHECK(trace->tensors == std::vector<std::string>{"c", "b", "a"});
    REQUIRE(trace->units.size() == 3);
    CHECK(trace->stalls);
    CHECK(trace->units[0].ready_s == doctest::Approx(.010));
    CHECK(trace->units[1].ready_s == doctest::Approx(.015));
    CHECK(trace->units[2].ready_s == doctest::Approx(.022));
    CHECK(trace->step_s == doctest::Approx(.022 + .003 + .007));
    CHECK(trace->steps == 8);  // the first has no begin, the last no end

    // Put through the timeline: as it is what was measured, and merged two fixed costs less.
    const Timeline step = trace->timeline();
    CHECK(step.end_s({{1, 2}, {}}) == doctest::Approx(trace->step_s));
    CHECK(step.end_s({}) == doctest::Approx(trace->step_s - .002).epsilon(1e-6));
    CHECK(best_grouping(step).cuts.empty());
  }

  TEST_CASE("what comes between steps now and then is none, and what comes from some time on is") {
    Program program;
    for (int i = 0; i < 40; ++i) {
      program.step();
      if (i % 10 == 9) program.call("metric", 40, .001);
    }
    CHECK(program.recorder.trace()->units.size() == 3);
    CHECK(program.recorder.trace()->steps == 40 - 2 - 3);  // but the first and the last, and those with a metric
    for (int i = 0; i < 2; ++i) program.step(), program.call("more", 400, .001);
    CHECK(program.recorder.trace()->units.size() == 3);
    for (int i = 0; i < 6; ++i) program.step(), program.call("more", 400, .001);
    CHECK(program.recorder.trace()->units.size() == 4);
  }

  TEST_CASE("what lies at the ends of a tensor that is known by its values is no tensor of the step") {
    StepRecorder recorder;
    const auto layout = Layout::make(Layout::Source::periodic, {{"", 0, 16}, {"#0.0.0", 16, 984}});
    for (int i = 0; i < 5; ++i) recorder.called(layout, 4000, i, i + .5);
    const auto trace = recorder.trace();
    REQUIRE(trace);
    CHECK(trace->tensors == std::vector<std::string>{"#0.0.0"});
    REQUIRE(trace->units.size() == 1);
    CHECK(trace->units[0].tensors == 1);
  }

  TEST_CASE("no step is known of calls that do not come again, nor of what has no end") {
    Program program;
    CHECK_FALSE(program.recorder.trace());
    for (int i = 0; i < 3; ++i) program.call(("once" + std::to_string(i)).c_str(), 4000, .001);
    CHECK_FALSE(program.recorder.trace());
    Program endless;
    for (std::size_t i = 0; i < 3 * StepRecorder::kMostCalls; ++i) endless.call(std::to_string(i).c_str(), 4000, .001);
    CHECK_FALSE(endless.recorder.trace());
  }

  TEST_CASE("times are medians: a step in sixteen that takes a second longer changes nothing") {
    Program program;
    for (int i = 0; i < 64; ++i) {
      if (i % 16 == 5) program.now_s += 1;
      program.step();
    }
    CHECK(program.recorder.trace()->units[0].ready_s == doctest::Approx(.010));
    CHECK(program.recorder.trace()->step_s == doctest::Approx(.032));
  }

  TEST_CASE("a trace is read as it was written") {
    const StepTrace trace = small_trace(), read = StepTrace::parse(trace.json());
    CHECK(read.tensors == trace.tensors);
    CHECK(read.units == trace.units);
    REQUIRE(read.calls.size() == 2);
    CHECK(read.calls[0].at(1000) == trace.calls[0].at(1000));
    CHECK(read.calls[1].empty());
    CHECK(read.stalls == trace.stalls);
    CHECK(read.step_s == 2);
    CHECK(read.steps == 7);
    CHECK(read.json() == trace.json());
    // Of the codec that no call was seen of none is planned.
    CHECK(best_grouping(read.timeline()).codec(0) == 0);
    // 0.25 + 0.25 / 4 a thousand bytes: both ready at 0.75.
    CHECK(read.timeline().end_s({}) == doctest::Approx(.75 + .5));
    CHECK(read.timeline().end_s({{1}, {}}) == doctest::Approx(.5 + .4375 + .3125));
  }

  TEST_CASE("a trace that makes no sense is refused") {
    const std::string good = small_trace().json();
    const auto with = [&](const std::string& from, const std::string& to) {
      std::string text = good;
      const auto at = text.find(from);
      REQUIRE(at != std::string::npos);
      return text.replace(at, from.size(), to);
    };
    CHECK_NOTHROW(StepTrace::parse(good));
    for (const auto& bad :
         {std::string("{"), std::string("[]"), with("\"tensors\":2", "\"tensors\":3"),
          with("\"tensors\":2", "\"tensors\":0"), with("\"tensors\":2", "\"tensors\":-1"),
          with("\"ready_s\":0.5", "\"ready_s\":-0.5"), with("4000.0", "0.0"), with("\"steps\":7", "\"steps\":\"many\""),
          with("\"stalls\":false", "\"stalls\":0"), with("\"w\"", "3")}) {
      CAPTURE(bad);
      CHECK_THROWS_AS(StepTrace::parse(bad), std::runtime_error);
    }
  }
}
