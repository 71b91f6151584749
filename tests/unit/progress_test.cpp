#include "core/progress.hpp"

#include <doctest/doctest.h>

#include "core/report.hpp"

using namespace crimp;

TEST_SUITE("progress") {
  namespace {

  CallRecord call(std::uint64_t in, std::uint64_t sent, double s) {
    CallRecord record{"fp16", "named", "allgather", "forced"};
    record.bytes = record.bytes_in = in;
    record.sent_bytes = sent;
    record.total_s = s;
    return record;
  }

  TimeRecord known(double took_s, double measured_s, double predicted_s) {
    TimeRecord record;
    record.calls = 4, record.elements = 400, record.took_s = took_s;
    if (measured_s > 0) record.plain_measured = {2, took_s, took_s / 2, measured_s};
    if (predicted_s > 0) record.plain_predicted = {2, took_s, took_s / 2, predicted_s};
    return record;
  }

  }  // namespace

  TEST_CASE("a report counts what a status says") {
    Report report;
    CHECK(report.progress().compressed == 0);
    report.compressed(call(1000, 100, 0.5));
    report.compressed(call(3000, 100, 0.5));
    report.passed(PassReason::small);
    report.passed(PassReason::small);
    report.passed(PassReason::slower);
    const JobProgress now = report.progress();
    CHECK(now.compressed == 2);
    CHECK(now.passed == 3);
    CHECK(now.bytes_in == 4000);
    CHECK(now.sent == 200);
    CHECK(now.calls_s == 1.0);
  }

  TEST_CASE("times of sessions that live and of those that have ended are added, and none twice") {
    Report report;
    const int one = 0, other = 0;
    CHECK(report.times_wanted() == 0);
    report.want_times();
    CHECK(report.times_wanted() == 1);
    report.times_until_now(&one, known(2, 4, 0));
    report.times_until_now(&one, known(4, 8, 0));  // in place of what it said before
    report.times_until_now(&other, known(2, 0, 7));
    CHECK(report.progress().times.plain_measured.s == 8);
    CHECK(report.progress().times.plain_predicted.s == 7);
    report.times_ended(&one);
    report.times("fp16", 64, known(4, 8, 0));
    CHECK(report.progress().times.plain_measured.s == 8);
    CHECK(report.progress().times.took_s == 6);
  }

  TEST_CASE("the line says what is known") {
    JobProgress now, before;
    CHECK(progress_text(now, before, 0) == "0:00, 0 calls compressed");
    now.passed = 7;
    CHECK(progress_text(now, before, 59.9) == "0:59, 0 calls compressed, 7 passed");
    now = {1, 0, 4'000'000'000, 100'000'000, 2, {}};
    CHECK(progress_text(now, before, 3723) == "1:02:03, 1 call compressed: 40.0x less, 2.00 GB/s");
    // What came since: 50 MB in half a second.
    before = now;
    now.compressed = 3, now.bytes_in += 50'000'000, now.calls_s += 0.5, now.passed = 1;
    CHECK(progress_text(now, before, 60) == "1:00, 3 calls compressed, 1 passed: 40.5x less, 100.0 MB/s");
    // Nothing since.
    CHECK(progress_text(now, now, 60) == "1:00, 3 calls compressed, 1 passed: 40.5x less, 1.62 GB/s");
    // A root, which sends headers.
    CHECK(progress_text({2, 1, 0, 256, 1, {}}, {}, 60) == "1:00, 2 calls compressed, 1 passed");
  }

  TEST_CASE("time is saved, or lost, as far as plain MPI's is known") {
    JobProgress now{2, 0, 1000, 100, 1, {}};
    const auto text = [&] {
      const std::string all = progress_text(now, {}, 0);
      return all.substr(all.rfind("B/s") + 3);
    };
    CHECK(text() == "");
    now.times = known(2, 13.5, 0);
    CHECK(text() == ", 12.5 s saved (measured)");
    now.times = known(2, 0, 4);
    CHECK(text() == ", 3.00 s saved (predicted)");
    now.times = known(2, 3, 4);
    CHECK(text() == ", 2.00 s saved (measured)");
    now.times = known(2, 0.75, 0);
    CHECK(text() == ", 0.25 s lost (measured)");
    now.times = known(2, 1001, 0);
    CHECK(text() == ", 1000 s saved (measured)");
    // Calls that MPI carried itself took what they would have taken, and say nothing of those that were compressed.
    now.times = known(2, 1, 0);
    CHECK(text() == "");
    now.times = known(2, 1, 4);
    CHECK(text() == ", 3.00 s saved (predicted)");
    now.times = known(2, 3, 4);
    now.times.plain_predicted.calls = 3;
    CHECK(text() == ", 3.00 s saved (predicted)");
  }
}
