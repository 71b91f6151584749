// CRIMP_CONTROL's law against networks whose times are arithmetic: bytes by rate.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "schedule/delay_control.hpp"

using namespace crimp;

TEST_SUITE("delay_control") {
  namespace {

  Clock::duration us(double n) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::micro>(n));
  }

  constexpr std::array<double, 6> kBits{16, 8, 4, 2, 1, 0.25};  // a value's, on each level
  constexpr int kLevels = kBits.size();
  constexpr DelayTarget kTenth{.fraction = 0.1};

  // Ranks that compute and then sum `elements` values together, by one rate. Rank r comes late[r] after the first.
  struct Job {
    double elements, compute_us, mbit_s;
    std::vector<double> late = {0, 0, 0};
    std::vector<DelayControl> ranks;
    std::vector<double> gains;  // of each level; none: not looked at
    double now = 0;
    Job(double n, double compute, double rate, const DelayTarget& target = kTenth, double floor = 0)
        : elements(n), compute_us(compute), mbit_s(rate) {
      for (std::size_t r = 0; r < late.size(); ++r) ranks.emplace_back(kLevels, target, floor);
    }
    std::uint64_t bytes() const { return static_cast<std::uint64_t>(4 * elements); }
    double other_us = 0;  // waiting that is not for bytes
    double wire_us(int level) const { return elements * kBits[static_cast<std::size_t>(level)] / mbit_s + other_us; }
    int level() { return ranks[0].level(bytes(), 0); }
    // One step; returns what it took.
    double step() {
      const double begin = now;
      double last = 0;
      for (const double l : late) last = std::max(last, l);
      const double started = now + compute_us + last;
      const int at = ranks[0].level(bytes(), 0);
      const double end = started + wire_us(at);
      DelayNotes notes;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CHECK(ranks[r].level(bytes(), 0) == at);  // the same on all ranks
        notes.add(ranks[r].note(bytes(), Clock::time_point() + us(now + compute_us + late[r])));
      }
      for (std::size_t r = 0; r < ranks.size(); ++r)
        ranks[r].ended(bytes(), Clock::time_point() + us(now + compute_us + late[r]), notes,
                       1e-6 * (end - (now + compute_us + late[r])),
                       gains.empty() ? -1 : gains[static_cast<std::size_t>(at)]);
      now = end;
      return end - begin;
    }
    // Steps until the level stays for 30.
    int settle(int most = 400) {
      int settled = 0, steps = 0, at = level();
      for (; steps < most && steps - settled < 30; ++steps) {
        step();
        if (level() != at) at = level(), settled = steps + 1;
      }
      return settled;
    }
  };

  }  // namespace

  TEST_CASE("a time in a header is within one in a thousand, up to fifty days, and rises with the time") {
    std::uint16_t before = 0;
    for (double t = 1; t < 4.39e12; t *= 1.01) {
      const auto code = DelayNote::coded(t);
      CHECK(code >= before);
      CHECK(code >= 1);
      CHECK(DelayNote::us_of(code) <= t);
      CHECK(DelayNote::us_of(code) >= t * (1 - 1.0 / 1024) - 1);
      before = code;
    }
    CHECK(DelayNote::coded(0) == 1);
    CHECK(DelayNote::us_of(DelayNote::coded(1e18)) == 2047.0 * 0x1p31);
    CHECK(DelayNote::us_of(DelayNote::coded(600e6)) >= 599e6);  // a step of ten minutes
  }

  TEST_CASE("of all ranks' words the least wait and the longest period count, and one that says nothing silences all") {
    DelayNotes notes;
    CHECK(notes.note() == DelayNote{});
    notes.add({10, 500});
    notes.add({12, 300});
    notes.add({11, 900});
    CHECK(notes.note() == DelayNote{12, 300});
    notes.add({9, 600 | DelayNote::kLossy});
    CHECK(notes.note() == DelayNote{12, 300 | DelayNote::kLossy});
    DelayNotes nodes;  // nodes' words are of their ranks'
    nodes.add(notes.note());
    nodes.add({20, 299});
    CHECK(nodes.note() == DelayNote{20, 299 | DelayNote::kLossy});
    nodes.add({});
    CHECK(nodes.note() == DelayNote{});
  }

  TEST_CASE("targets are shares or times") {
    DelayTarget t;
    CHECK(DelayTarget::parse("10%", t));
    CHECK(t.fraction == 0.1);
    CHECK(t.us == 0);
    CHECK(DelayTarget::parse("2.5ms", t));
    CHECK(t.us == 2500);
    CHECK(DelayTarget::parse("300us", t));
    CHECK(t.us == 300);
    CHECK(DelayTarget::parse("1s", t));
    CHECK(t.us == 1e6);
    for (const char* bad : {"", "%", "10", "0%", "91%", "-1%", "x%", "10%%", "5 ms", "ms", "nan%", "infs", "1e9s"}) {
      CAPTURE(bad);
      CHECK_FALSE(DelayTarget::parse(bad, t));
    }
    CHECK(t.us == 1e6);
  }

  TEST_CASE("one or two samples do not make a codec one that sends too little") {
    DelayControl control(kLevels, {}, 0.3);
    for (int call = 0; call < 4; ++call) {
      const auto now = Clock::time_point() + us(1e5 * call);
      control.level(1 << 20, 0);
      const DelayNote note = control.note(1 << 20, now);
      CHECK(((note.wait & DelayNote::kLossy) != 0) == (call >= DelayControl::kWindow));
      control.ended(1 << 20, now, {}, 1e-3, 0.1);
    }
    CHECK(control.classes().begin()->second.gains == DelayControl::kWindow);  // no more: a job may go on for ever
  }

  // 25 million values, 100 ms of computing: a tenth of the time is about 11 ms.
  TEST_CASE("the level is the mildest that keeps waiting near the target, settled within twenty steps") {
    for (const double rate : {100'000.0, 20'000.0, 10'000.0, 1'000.0, 100.0}) {
      Job job(25e6, 100e3, rate);
      CAPTURE(rate);
      const int steps = job.settle();
      const int level = job.level();
      CAPTURE(level);
      CHECK(steps <= 20);
      const auto share = [&](int l) { return job.wire_us(l) / (job.compute_us + job.wire_us(l)); };
      CHECK((share(level) <= 0.1 * DelayControl::kOver || level == kLevels - 1));
      if (level > 0) CHECK(share(level - 1) > 0.1);
      CHECK(job.ranks[0].changes() <= 6);
    }
  }

  TEST_CASE("of its own first calls, which decide nothing, a class has no less of the target") {
    Job job(25e6, 100e3, 1000);
    double step_us = 0;
    while (job.ranks[0].changes() == 0) step_us = job.step();
    CHECK(job.ranks[0].decisions()[0].target_us == doctest::Approx(0.1 * step_us).epsilon(2e-3));
  }

  TEST_CASE("it follows a network that changes") {
    Job job(25e6, 100e3, 1000);
    job.settle();
    const int at_1g = job.level();
    for (const auto& [rate, slower] : {std::pair{100.0, true}, {20.0, true}, {1000.0, false}}) {
      job.mbit_s = rate;
      CAPTURE(job.mbit_s);
      CHECK(job.settle() <= 20);
      if (slower) CHECK(job.level() >= at_1g);
    }
    CHECK(job.level() == at_1g);
    job.mbit_s = 1e6;
    CHECK(job.settle() <= 30);
    CHECK(job.level() == 0);
  }

  TEST_CASE("a rank that comes late makes nobody compress more") {
    Job job(25e6, 100e3, 20'000);
    job.settle();
    const int level = job.level();
    job.late = {0, 300e3, 0};
    job.settle();
    CHECK(job.level() <= level);
    CHECK(job.level() + 1 >= level);  // there is more time that passes, so milder at most
  }

  TEST_CASE("between two levels it stays on the stronger and tries the milder ever more rarely") {
    // Waiting is under half of the target on one level and over it by more than the dead band on the milder one.
    Job job(25e6, 100e3, 1);
    job.mbit_s = 25e6 * 0.25 / 4.0e3;  // 4 ms on the strongest, 16 ms on the one before
    job.settle();
    for (int s = 0; s < 3000; ++s) job.step();
    const auto changes = job.ranks[0].changes();
    CHECK(job.level() == kLevels - 1);
    for (int s = 0; s < 3000; ++s) job.step();
    CHECK(job.ranks[0].changes() - changes <= 2 * 3000 / DelayControl::kWindow / DelayControl::kLongestBar + 2);
  }

  TEST_CASE("where too little of the values is sent, compression becomes milder and stays so") {
    Job job(25e6, 100e3, 100, kTenth, 0.3);
    job.gains = {1, 1, 0.9, 0.6, 0.5, 0.1};
    for (int s = 0; s < 60; ++s) job.step();
    CHECK(job.level() == 4);
    int steps_below = 0;
    for (int s = 0; s < 300; ++s) job.step(), steps_below += job.level() == 5;
    CHECK(steps_below <= 30);
    bool said = false;
    for (const auto& d : job.ranks[1].decisions()) said = said || std::string(d.why).find("too little") == 0;
    CHECK(said);
    // However slow the network: what is stronger than a level that sends too little is not tried either.
    Job lossy(25e6, 100e3, 50, {}, 0.3);
    lossy.gains = {1, 1, 1, 0.1, 0.1, 0.1};
    for (int s = 0; s < 300; ++s) lossy.step();
    std::uint64_t strong = 0;
    for (int l = 3; l < kLevels; ++l)
      strong += lossy.ranks[0].classes().begin()->second.calls_at[static_cast<std::size_t>(l)];
    CHECK(strong <= 50);
    CHECK(lossy.level() == 2);
    Job free(25e6, 100e3, 100, {}, 0);
    free.gains = job.gains;
    free.settle();
    CHECK(free.level() == 5);
  }

  TEST_CASE("what compression does not shorten makes it no stronger, until bytes are what is waited for") {
    Job job(1e6, 100e3, 1e6);
    job.other_us = 50e3;
    for (int s = 0; s < 600; ++s) job.step();
    std::uint64_t strong = 0;
    for (int l = 2; l < kLevels; ++l)
      strong += job.ranks[0].classes().begin()->second.calls_at[static_cast<std::size_t>(l)];
    CHECK(strong <= 60);
    CHECK(job.ranks[0].changes() <= 20);
    job.mbit_s = 5;  // 3.2 s at 16 bits
    CHECK(job.settle() <= 40);
    CHECK(job.level() == kLevels - 1);
  }

  // So many steps in a row that what was barred last is barred for hundreds of calls.
  TEST_CASE("on another network levels are tried again that are barred") {
    DelayTarget target;
    DelayTarget::parse("10ms", target);
    // The strongest level waits a third of the target, the one before by a third longer than that: it is barred.
    const double strongest = 25e6 * kBits[kLevels - 1];
    Job job(25e6, 100e3, strongest / 3.3e3, target);
    for (int s = 0; s < 1000; ++s) job.step();
    while (job.level() == kLevels - 1) job.step();
    while (job.level() != kLevels - 1) job.step();
    job.mbit_s = strongest / 9e3;
    for (int s = 0; s < 12; ++s) job.step();
    CHECK(job.level() == kLevels - 1);
    job.mbit_s = strongest / 2e3;
    for (int s = 0; s < 12; ++s) job.step();
    CHECK(job.level() == kLevels - 2);

    // Stronger levels are barred, because what is waited for is not bytes; then it is.
    Job idle(1e6, 100e3, 1e6);
    idle.other_us = 50e3;
    for (int s = 0; s < 1000; ++s) idle.step();
    while (idle.level() == 0) idle.step();
    while (idle.level() != 0) idle.step();
    idle.mbit_s = 5;
    for (int s = 0; s < 30; ++s) idle.step();
    CHECK(idle.level() == kLevels - 1);
  }

  TEST_CASE("a target in time is one call's") {
    DelayTarget target;
    DelayTarget::parse("60ms", target);
    Job job(25e6, 100e3, 1000, target);
    job.settle();
    CHECK(job.level() == 3);  // 50 ms; 100 on the one before
  }

  TEST_CASE("classes share the target by bytes") {
    // One large and four small calls a step, back to back: all small ones have 4/5 of the bytes of a class of their
    // own.
    DelayControl control(kLevels, {}, 0);
    double now = 0;
    const std::uint64_t large = 64 << 20, small = 4 << 20;
    for (int step = 0; step < 200; ++step) {
      now += 100e3;
      for (int call = 0; call < 5; ++call) {
        const std::uint64_t bytes = call == 0 ? large : small;
        const int level = control.level(bytes, 0);
        const double wire = static_cast<double>(bytes / 4) * kBits[static_cast<std::size_t>(level)] / 1000;
        DelayNotes notes;
        const auto begun = Clock::time_point() + us(now);
        notes.add(control.note(bytes, begun));
        now += wire;
        control.ended(bytes, begun, notes, 1e-6 * wire, -1);
      }
    }
    // 100 ms a step and its waiting: about 11 ms, for 20 M values, so 0.55 bits a value: between the last two levels.
    CHECK(control.level(large, 0) == 5);
    CHECK(control.level(small, 0) >= 4);
    CHECK(control.classes().size() == 2);
  }

  TEST_CASE("calls of other sizes begin where the nearest class is, not at the mildest level") {
    Job job(1e6, 100'000, 100);
    job.settle();
    const int settled = job.level();
    REQUIRE(settled > 2);
    DelayControl& rank = job.ranks[0];
    CHECK(rank.level(64, 1) == settled);
    CHECK(rank.level(std::uint64_t{1} << 40, 1) == settled);
    // 64 bytes are a class of its own level now: who is nearer to it begins there.
    for (int call = 0; call < 40; ++call) {
      const auto begun = Clock::time_point() + us(job.now + 1e5 * call);
      DelayNotes notes;
      notes.add(rank.note(64, begun));
      rank.ended(64, begun, notes, 1e-6, -1);
    }
    const int small = rank.level(64, 1);
    CHECK(small < settled);
    CHECK(rank.level(512, 1) == small);
    CHECK(rank.level(4'000'000 / 20, 1) == settled);
  }

  TEST_CASE("calls of sizes that were not seen for long go on where the nearest class is") {
    Job job(1e6, 100'000, 1e6);
    for (int step = 0; step < 3; ++step) job.step();
    CHECK(job.level() == 0);
    job.elements = 1.6e7;  // another class from now on, on a network that becomes slow
    job.mbit_s = 200;
    for (int step = 0; step < 100; ++step) job.step();
    const int settled = job.level();
    REQUIRE(settled > 1);
    REQUIRE(job.ranks[0].classes().size() == 2);
    job.elements = 1e6;
    CHECK(job.level() == settled);
    for (int step = 0; step < 3; ++step) job.step();
    CHECK(job.level() == settled);
    const auto& last = job.ranks[0].decisions().back();
    CHECK(last.from == 0);
    CHECK(last.to == settled);
    CHECK(std::string(last.why).find("for long") != std::string::npos);
  }

  // Behind a pause nothing is known of what the change before it has done.
  TEST_CASE("calls that fell silent behind a step down are not held against what they waited for before") {
    for (const double later_mbit_s : {2.0, 20.0, 200.0}) {
      CAPTURE(later_mbit_s);
      Job job(1e7, 1e6, 20);  // too slow for every level
      job.settle();
      REQUIRE(job.level() == kLevels - 1);
      job.mbit_s = 1e5;
      int steps = 0;
      while (job.level() == kLevels - 1 && ++steps < 400) job.step();
      REQUIRE(job.level() < kLevels - 1);
      const double elements = std::exchange(job.elements, 4e4);
      for (int call = 0; call < 1000; ++call) job.step();
      job.elements = elements;
      job.mbit_s = later_mbit_s;
      const std::size_t before = job.ranks[0].decisions().size();
      for (int step = 0; step < 12; ++step) job.step();
      const auto& decisions = job.ranks[0].decisions();
      for (std::size_t d = before; d < decisions.size(); ++d) {
        CAPTURE(decisions[d].why);
        CHECK(std::string(decisions[d].why).find("did not shorten") == std::string::npos);
      }
    }
  }

  TEST_CASE("one large call among a hundred small ones in every step is controlled") {
    DelayControl control(kLevels, {}, 0);
    double now = 0;
    const auto call = [&](std::uint64_t bytes, double wire) {
      DelayNotes notes;
      const auto begun = Clock::time_point() + us(now);
      notes.add(control.note(bytes, begun));
      now += wire;
      control.ended(bytes, begun, notes, 1e-6 * wire, -1);
    };
    constexpr std::uint64_t kLarge = 256 << 20, kSmall = 64 << 10;
    int level = 0;
    for (int step = 0; step < 120; ++step) {
      now += 100e3;
      level = control.level(kLarge, 0);
      call(kLarge, static_cast<double>(kLarge / 4) * kBits[static_cast<std::size_t>(level)] / 1000);
      for (int i = 0; i < 100; ++i) control.level(kSmall, 0), call(kSmall, 1);
    }
    CHECK(level >= 5);  // 16 bits of 64 Mi values take 1 s, in a step of .1 s
  }

  TEST_CASE("a call in which a rank says nothing changes nothing") {
    Job job(25e6, 100e3, 100);
    const int level = job.level();
    for (int s = 0; s < 50; ++s) {
      DelayNotes notes;
      notes.add({});
      notes.add(DelayNote{DelayNote::coded(1e5), 90'000});
      for (auto& rank : job.ranks)
        rank.level(job.bytes(), 0), rank.ended(job.bytes(), Clock::time_point(), notes, 0.09, -1);
    }
    CHECK(job.level() == level);
    CHECK(job.ranks[0].changes() == 0);
  }
}
