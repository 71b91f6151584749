#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/history.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"

using namespace crimp;
using nlohmann::json;

TEST_SUITE("history") {
  namespace {

  constexpr double kWidth = TimeBins::kFirstWidth_s;

  TimeBins::Amounts call(double bytes, double wire_s) {
    TimeBins::Amounts a{};
    a[TimeBins::calls] = 1;
    a[TimeBins::bytes_in] = bytes;
    a[TimeBins::wire_s] = wire_s;
    return a;
  }
  double sum(const TimeBins& bins, TimeBins::Kind kind) {
    return std::accumulate(bins.bins().begin(), bins.bins().end(), 0.0,
                           [&](double s, const TimeBins::Amounts& a) { return s + a[kind]; });
  }

  }  // namespace

  TEST_CASE("nothing takes no memory") {
    TimeBins bins;
    CHECK(bins.bins().empty());
    CHECK(bins.used() == 0);
  }

  TEST_CASE("a call is in the bins of its time, by the time in each") {
    TimeBins bins;
    bins.note(2 * kWidth, 2.5 * kWidth, call(100, 0));  // in one
    CHECK(bins.bins()[2][TimeBins::bytes_in] == 100);
    bins.note(3.5 * kWidth, 5.5 * kWidth, call(400, 0));  // a quarter, a half, a quarter
    CHECK(bins.bins()[3][TimeBins::bytes_in] == doctest::Approx(100));
    CHECK(bins.bins()[4][TimeBins::bytes_in] == doctest::Approx(200));
    CHECK(bins.bins()[5][TimeBins::bytes_in] == doctest::Approx(100));
    CHECK(bins.used() == 6);
    CHECK(sum(bins, TimeBins::calls) == doctest::Approx(2));
  }

  TEST_CASE("bins widen by powers of two, and what was in them stays") {
    TimeBins bins;
    bins.note(0, 0, call(1, 0));
    bins.note(3 * kWidth, 3 * kWidth, call(2, 0));
    bins.note(256 * kWidth, 256 * kWidth, call(4, 0));  // the first that 256 bins do not have
    CHECK(bins.width_s() == 2 * kWidth);
    CHECK(bins.bins().size() == TimeBins::kBins);
    CHECK(bins.bins()[0][TimeBins::bytes_in] == 1);
    CHECK(bins.bins()[1][TimeBins::bytes_in] == 2);
    CHECK(bins.bins()[128][TimeBins::bytes_in] == 4);
    bins.note(86400 * 365, 86400 * 365, call(8, 0));  // a year on
    CHECK(bins.width_s() * TimeBins::kBins > 86400 * 365);
    CHECK(bins.width_s() * TimeBins::kBins <= 2 * 86400 * 365);
    CHECK(std::log2(bins.width_s() / kWidth) == std::floor(std::log2(bins.width_s() / kWidth)));
    CHECK(bins.bins()[0][TimeBins::bytes_in] == 7);
    CHECK(sum(bins, TimeBins::bytes_in) == doctest::Approx(15));
  }

  TEST_CASE("times that are none are left out; what began before the origin begins there") {
    TimeBins bins;
    const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
    bins.note(nan, 1, call(1, 0));
    bins.note(0, nan, call(1, 0));
    bins.note(0, infinity, call(1, 0));
    bins.note(-2, -1, call(1, 0));
    bins.note(2, 1, call(1, 0));
    CHECK(bins.used() == 0);
    bins.note(-1, kWidth / 2, call(1, 0));
    CHECK(bins.bins()[0][TimeBins::bytes_in] == 1);
  }

  TEST_CASE("tensors are listed up to a bound, the others' calls are counted") {
    TensorLog log;
    for (int round = 0; round < 2; ++round)
      for (std::size_t i = 0; i < TensorLog::kListed + 3; ++i)
        log.called("t" + std::to_string(i), "named", 10, "fp16", 40, 20);
    CHECK(log.tensors().size() == TensorLog::kListed);
    CHECK(log.unlisted_calls() == 6);
    const TensorLog::Tensor& t = log.tensors().at("t0");
    CHECK(t.calls == 2);
    CHECK(t.bytes_in == 80);
    CHECK(t.sent_bytes == 40);
    log.sampled("beyond", "residual", {1, 0, 1, 1});  // of what is not listed: nothing
    CHECK(log.tensors().size() == TensorLog::kListed);
  }

  TEST_CASE("of a tensor so many codecs and samples, and no more") {
    TensorLog log;
    for (int c = 0; c < 20; ++c) log.called("t", "named", 1, "codec" + std::to_string(c), 4, 2);
    const TensorLog::Tensor& t = log.tensors().at("t");
    REQUIRE(t.codecs.size() == TensorLog::kCodecs);
    CHECK(t.codecs.front().calls == 1);
    CHECK(t.codecs.back().calls == 13);
    for (std::uint64_t s = 1; s <= 40; ++s) log.sampled("t", "residual", {s, 0, 1, 1});
    REQUIRE(t.samples.size() == TensorLog::kSamples);
    CHECK(t.samples.back().call == 40);
  }

  TEST_CASE("residuals are looked at in calls 1, 2, 4 and so on, and not where calls are no longer counted") {
    std::vector<std::uint32_t> calls;
    for (std::uint32_t before = 0; before < 1000; ++before)
      if (TensorLog::samples(before)) calls.push_back(before + 1);
    CHECK(calls == std::vector<std::uint32_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512});
    CHECK(TensorLog::samples((std::uint32_t{1} << 31) - 1));
    CHECK_FALSE(TensorLog::samples(~std::uint32_t{0} - 1));
    CHECK_FALSE(TensorLog::samples(~std::uint32_t{0}));
  }

  TEST_CASE("as JSON: whole microseconds whose sum is the time's, no list of what never was") {
    const auto origin = Clock::now();
    History history(origin);
    const auto at = [&](double s) {
      return origin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
    };
    TimeBins::Amounts a = call(1000, 1e-6 / 3);
    for (int i = 0; i < 30; ++i) history.called(at(i * 0.001), at(i * 0.001 + 0.0001), a);
    history.tensor("caf\xe9", "named", 250, "fp16", 1000, 500);
    history.sampled("caf\xe9", "residual", 1, 0.5, 2);
    const json out = json::parse(history.json());
    CHECK(out["bins"]["width_s"] == kWidth);
    std::int64_t wire_us = 0, in_calls_us = 0;
    for (const auto& us : out["bins"]["wire_us"]) wire_us += us.get<std::int64_t>();
    for (const auto& us : out["bins"]["in_calls_us"]) in_calls_us += us.get<std::int64_t>();
    CHECK(wire_us == 10);  // 30 times a third, none of which is a whole one
    CHECK(std::abs(in_calls_us - 3000) <= 1);
    CHECK_FALSE(out["bins"].contains("decode_us"));
    CHECK_FALSE(out["bins"].contains("wait_us"));
    CHECK(out["bins"]["wire_us"].size() == out["bins"]["bins"]);
    const json& t = out["tensors"]["listed"][0];
    CHECK(t["name"] == "caf\xef\xbf\xbd");
    CHECK(t["codecs"]["fp16"] == 1);
    CHECK(t["residual"][0]["norm"] == 0.5);
    CHECK(t["residual"][0]["values_norm"] == 2);
    CHECK(out["started"].get<double>() > 1.6e9);
    CHECK(out["ended"].get<double>() >= out["started"].get<double>());
    CHECK_FALSE(out["program"].get<std::string>().empty());
  }

  TEST_CASE("a job has taken what has passed since its origin, whatever the system's clock was set to") {
    const json out = json::parse(History(Clock::now() - std::chrono::seconds(100)).json());
    const double took = out["ended"].get<double>() - out["started"].get<double>();
    CHECK(took >= 100 - 1e-3);
    CHECK(took < 1000);
  }

  TEST_CASE("a job takes what its longest rank took, however far the clocks of hosts are apart") {
    const auto rank = [](double started, double took) {
      json of = json::parse(Report().json());
      of["timeline"] = {{"host", "h"}, {"program", "p"}, {"started", started}, {"ended", started + took}};
      return of.dump();
    };
    const double day = 86400;
    const auto job = [&](const std::vector<std::string>& ranks) {
      return json::parse(Report::of_job(Settings{}, static_cast<int>(ranks.size()), "AVX2", "on", ranks))["job"];
    };
    for (const double apart : {-400 * day, -5.0, 0.0, 30.0, 400 * day}) {
      const json of = job({rank(2e9, 3), "", rank(2e9 + apart, 4)});
      CHECK(of["started"] == 2e9);
      CHECK(of["ended"] == 2e9 + 4);
    }
    CHECK(job({rank(2e9, 5), rank(2e9 + day, 1)})["ended"] == 2e9 + 5);
  }

  TEST_CASE("nodes are those by which Crimp went, and names of hosts where it asked for none") {
    json of = json::parse(Report().json());
    of["timeline"] = {{"host", "h"}, {"program", "p"}, {"started", 2e9}, {"ended", 2e9}};
    const std::vector<std::string> ranks(3, of.dump());
    for (const std::size_t nodes : {0, 1, 2, 3}) {
      const json job = json::parse(Report::of_job(Settings{}, 3, "AVX2", "on", ranks, nodes))["job"];
      CHECK(job["nodes"] == std::max<std::size_t>(nodes, 1));
      CHECK(job["hosts"] == json{{"h", 3}});
    }
  }

  TEST_CASE("the file: a line for each rank's timeline, the job from them, tensors with their rank") {
    Settings settings;
    Report report;
    CHECK(report.history() == nullptr);
    report.keep_history(Clock::now());
    report.history()->tensor("w", "named", 1, "fp16", 4, 2);
    const std::string mine = report.json();
    const std::string text = Report::of_job(settings, 3, "AVX2", "on", {mine, "", mine});
    const json file = json::parse(text);
    REQUIRE(file["timeline"].size() == 3);
    CHECK(file["timeline"][1].is_null());
    CHECK(file["per_rank"][0]["tensors"]["listed"][0]["name"] == "w");
    CHECK_FALSE(file["per_rank"][0].contains("timeline"));
    CHECK_FALSE(file["timeline"][0].contains("tensors"));
    CHECK(file["job"]["nodes"] == 1);
    CHECK(file["job"]["hosts"].begin().value() == 2);  // of the ranks that say so
    CHECK(file["per_rank"][1].contains("error"));
    // Without a history nothing of it.
    const json none = json::parse(Report::of_job(settings, 1, "AVX2", "on", {Report().json()}));
    CHECK(none["timeline"][0].is_null());
    CHECK(none["job"]["nodes"] == 0);
  }
}
