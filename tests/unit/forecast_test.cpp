// Steps of a cluster that is described, by hand; and what must hold for any of them.
#include "forecast.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "codec/codec.hpp"
#include "collective/collective.hpp"
#include "core/error.hpp"

using namespace crimp;
using namespace crimp::tools;

TEST_SUITE("forecast") {
  namespace {

  const std::string kBytes = make_codec("8bit")->spec(), kTernary = make_codec("3lc")->spec();

  // Links of 1 MB a second, messages and additions that take no time, and a codec whose values are a byte each and take
  // no time either.
  ClusterShape slow_links(int ranks = 2) {
    ClusterShape shape;
    shape.ranks = shape.nodes = ranks;
    shape.bytes_per_s = 1e6;
    shape.latency_s = 0;
    shape.add_bytes_per_s = 1e18;
    return shape;
  }
  const std::map<std::string, CodecCost> kFree{{kBytes, {.payload_bytes = 1}}};

  TensorList million_each(int tensors) {
    TensorList list;
    for (int i = 0; i < tensors; ++i) list.tensors.push_back({"t" + std::to_string(i), 1'000'000});
    return list;
  }

  ForecastSettings with(std::vector<std::string> merge) { return {{}, std::move(merge)}; }

  // Headers are 64 bytes a chunk.
  doctest::Approx about(double s) { return doctest::Approx(s).epsilon(2e-3); }

  const Forecast& row(const std::vector<Forecast>& all, const std::string& codec, const std::string& algorithm) {
    for (const Forecast& one : all)
      if (one.codec == codec && one.algorithm == algorithm) return one;
    throw std::runtime_error("no row " + codec + ", " + algorithm);
  }

  }  // namespace

  TEST_CASE("bytes over rate") {
    // Two ranks: plain MPI sends 4 MB by each, allgather 1 MB.
    const ClusterProfile profile = profile_of(slow_links(), kFree);
    const StepShape step = StepShape::of(million_each(1), 0, true, 4);
    const Forecast plain = forecast(profile, step, with({}), "none", "mpi", "off");
    CHECK(plain.step_s == about(4));
    CHECK(plain.sent_bytes == about(4e6));
    const Forecast gathered = forecast(profile, step, with({}), "8bit", "allgather", "off");
    CHECK(gathered.step_s == about(1));
    CHECK(gathered.sent_bytes == about(1e6));
    CHECK(gathered.bound == Forecast::Bound::bandwidth);
    // In halves plain MPI has half of the bytes.
    CHECK(forecast(profile, StepShape::of(million_each(1), 0, true, 2), with({}), "none", "mpi", "off").step_s ==
          about(2));
    // Four ranks: 2 * 3/4 * 4 MB, 3 MB, and 2 * 3/4 * 1 MB.
    const ClusterProfile four = profile_of(slow_links(4), kFree);
    CHECK(forecast(four, step, with({}), "none", "mpi", "off").step_s == about(6));
    CHECK(forecast(four, step, with({}), "8bit", "allgather", "off").step_s == about(3));
    const Forecast shards = forecast(four, step, with({}), "8bit", "two_shot", "off");
    CHECK(shards.step_s == doctest::Approx(1.5).epsilon(0.03));  // shards are whole pieces
    CHECK(shards.sent_bytes == about(1.5e6));
    CHECK(forecast(four, step, with({}), "8bit", "auto", "off").step_s == shards.step_s);
  }

  TEST_CASE("computing hides what it can") {
    // 3 s of computing: the last tensor is ready after 2 s, the first after 3. A call of plain MPI takes 4 s.
    const ClusterProfile profile = profile_of(slow_links(), kFree);
    const StepShape step = StepShape::of(million_each(2), 3, true, 4);
    CHECK(step.tensors.front().name == "t1");
    CHECK(step.ready_s == std::vector<double>{2, 3});
    CHECK(forecast(profile, step, with({}), "none", "mpi", "off").step_s == about(10));
    CHECK(forecast(profile, step, with({}), "none", "mpi", "all").step_s == about(11));
    const Forecast best = forecast(profile, step, with({}), "none", "mpi", "auto");
    CHECK(best.step_s == about(10));
    CHECK(best.merge == "off");
    CHECK(best.exchange_s == about(8));
    CHECK(forecast(profile, step, with({}), "8bit", "allgather", "off").step_s == about(4));
    // Behind all computing: 3 + 2.
    const StepShape behind = StepShape::of(million_each(2), 3, false, 4);
    CHECK(forecast(profile, behind, with({}), "8bit", "allgather", "off").step_s == about(5));
    // All hidden but what comes last: 300 s of computing.
    const Forecast hidden =
        forecast(profile, StepShape::of(million_each(2), 300, true, 4), with({}), "8bit", "allgather", "off");
    CHECK(hidden.step_s == about(301));
    CHECK(hidden.bound == Forecast::Bound::computing);
  }

  TEST_CASE("latency merges tensors, and encoding is told from the wire") {
    ClusterShape shape = slow_links();
    shape.latency_s = 1;
    const ClusterProfile profile = profile_of(shape, kFree);
    TensorList list;
    for (int i = 0; i < 5; ++i) list.tensors.push_back({"t" + std::to_string(i), 20'000});
    const StepShape step = StepShape::of(list, 0, true, 4);
    // A message of plain MPI is 1 s, of 80 kB 0.08 s: five calls 5.4, one 1.4.
    CHECK(forecast(profile, step, with({}), "none", "mpi", "off").step_s == about(5.4));
    const Forecast merged = forecast(profile, step, with({}), "none", "mpi", "auto");
    CHECK(merged.step_s == about(1.4));
    CHECK(merged.merge == "all");
    CHECK(merged.bound == Forecast::Bound::latency);
    const ClusterProfile busy =
        profile_of(slow_links(), {{kBytes, {.encode_s = 1e-3, .decode_s = 1e-3, .payload_bytes = 1}}});
    CHECK(forecast(busy, step, with({}), "8bit", "allgather", "all").bound == Forecast::Bound::codec);
  }

  TEST_CASE("what bounds the calls that auto takes is what bounds them by name") {
    const StepShape step = StepShape::of(million_each(1), 0, true, 4);
    std::set<Forecast::Bound> bounds;
    for (double latency_s = 0.1; latency_s < 4; latency_s += 0.1) {
      CAPTURE(latency_s);
      ClusterShape shape = slow_links(4);
      shape.latency_s = latency_s;
      std::vector<std::string> left_out;
      const auto rows = forecasts(profile_of(shape, kFree), step, with({"off"}), &left_out);
      const Forecast& chosen = row(rows, kBytes, "auto");
      for (const Forecast& one : rows)
        if (one.step_s == chosen.step_s) CHECK(one.bound == chosen.bound);
      bounds.insert(chosen.bound);
    }
    CHECK(bounds == std::set{Forecast::Bound::bandwidth, Forecast::Bound::latency});
  }

  TEST_CASE("what rules leave out, and what is too small, goes by plain MPI") {
    const ClusterProfile profile = profile_of(slow_links(), kFree);
    TensorList list;
    list.tensors = {{"w", 1'000'000}, {"w.bias", 100'000}, {"small", 16'383}};
    const StepShape step = StepShape::of(list, 0, true, 4);
    CHECK(forecast(profile, step, with({}), "8bit", "allgather", "off").step_s == about(1 + 0.4 + 4 * 0.016383));
    // Together: only the bias stays exact.
    CHECK(forecast(profile, step, with({}), "8bit", "allgather", "all").step_s == about(1.016383 + 0.4));
    ForecastSettings none = with({});
    none.settings.rules = "";
    CHECK(forecast(profile, step, none, "8bit", "allgather", "all").step_s == about(1.116383));
    none.settings.min_count = 1 << 21;
    CHECK(forecast(profile, step, none, "8bit", "allgather", "all").step_s == about(4 * 1.116383));
  }

  TEST_CASE("measured calls stand for the model's") {
    ClusterProfile profile = profile_of(slow_links(), kFree);
    profile.measured = true;
    Curve& curve = profile.codecs[kBytes].calls["two_shot"];
    curve.add(1e5, 0.5), curve.add(4e6, 0.6), curve.add(8e6, 0.9);
    const StepShape step = StepShape::of(million_each(1), 0, true, 4);
    const Forecast one = forecast(profile, step, with({}), "8bit", "two_shot", "off");
    CHECK(one.step_s == doctest::Approx(0.6));
    CHECK(one.by_calls);
    std::vector<std::string> left_out;
    const auto all = forecasts(profile, step, with({"off"}), &left_out);
    CHECK(all.size() == 3);  // plain, two_shot, auto
    CHECK(all.front().codec == "none");
    CHECK(row(all, kBytes, "auto").step_s == doctest::Approx(0.6));
    // Where plain MPI is faster auto takes it.
    profile.codecs[kBytes].calls["two_shot"] = Curve();
    profile.codecs[kBytes].calls["two_shot"].add(1e5, 50), profile.codecs[kBytes].calls["two_shot"].add(4e6, 60);
    CHECK(forecast(profile, step, with({}), "8bit", "auto", "off").step_s == about(4));
  }

  TEST_CASE("ranks that share cores, and ranks that share a link") {
    ClusterShape shape = slow_links(4);
    CHECK(shape.crowd(shape.threads) == 1);
    shape.cores = 2;
    CHECK(shape.crowd(shape.threads) == 1);  // a node has one rank
    shape.one_machine = true;
    CHECK(shape.crowd(shape.threads) == 2);
    shape.threads = 3;
    CHECK(shape.crowd(shape.threads) == 6);
    // MPI adds with one thread a rank, whatever encodes.
    const double crowded = profile_of(shape, kFree).network.plain.at(3e6);
    shape.threads = 1;
    CHECK(profile_of(shape, kFree).network.plain.at(3e6) == crowded);
    shape = slow_links(4);
    shape.nodes = 2;
    shape.cores = 1;
    CHECK(shape.crowd(shape.threads) == 2);
    const ClusterProfile two = profile_of(shape, kFree);
    REQUIRE(two.hierarchy);
    CHECK(two.hierarchy->leaders.ranks == 2);
    // Of what a rank receives from three others two thirds come over the link, for two ranks.
    CHECK(two.network.allgather.at(3e6) == about(4));
    shape.nodes = 1;
    CHECK(!profile_of(shape, kFree).hierarchy);
  }

  TEST_CASE("a faster link is never slower, nor one with less latency") {
    std::mt19937 random(7);
    const std::map<std::string, CodecCost> costs{
        {kBytes, {.encode_s = 1e-9, .decode_s = 5e-10, .payload_bytes = 1, .scan_s = 1e-10, .add_s = 4e-10}},
        {kTernary, {.encode_s = 8e-10, .decode_s = 6e-10, .payload_bytes = .1, .scan_s = 1e-10, .add_s = 3e-10}},
        {"fp16", {.encode_s = 3e-10, .decode_s = 3e-10, .payload_bytes = 2, .scan_s = 1e-10, .add_s = 3e-10}}};
    for (int i = 0; i < 30; ++i) {
      CAPTURE(i);
      TensorList list;
      for (int t = 0; t < 8; ++t) list.tensors.push_back({"t" + std::to_string(t), 1 + random() % 4'000'000});
      const StepShape step = StepShape::of(list, 1e-3 * static_cast<double>(random() % 100), i % 2, 4);
      ClusterShape shape;
      shape.ranks = shape.nodes = 2 << random() % 5;
      shape.bytes_per_s = 1e6 * std::pow(10, static_cast<double>(random() % 400) / 100);
      shape.latency_s = 1e-6 * static_cast<double>(random() % 200);
      ClusterShape faster = shape, nearer = shape;
      faster.bytes_per_s *= 1.5;
      nearer.latency_s /= 2;
      std::vector<std::string> left_out;
      const auto before = forecasts(profile_of(shape, costs), step, with({"auto"}), &left_out);
      for (const ClusterShape& other : {faster, nearer}) {
        const auto after = forecasts(profile_of(other, costs), step, with({"auto"}), &left_out);
        REQUIRE(before.size() == after.size());
        for (std::size_t k = 0; k < before.size(); ++k) {
          CAPTURE(before[k].codec + ", " + before[k].algorithm);
          CHECK(after[k].step_s <=
                before[k].step_s / (kWorthMemory * kWorthMemory));  // relays and other chunks: where they gain that
        }
      }
      CHECK(left_out.empty());
      for (const Forecast& one : before) {
        CHECK(one.step_s >= step.compute_s);
        CHECK(std::isfinite(one.step_s));
        if (one.algorithm == "auto")
          CHECK(one.step_s <= before.front().step_s * (1 + 1e-9));  // never slower than plain MPI
      }
    }
  }

  TEST_CASE("chance in a measured curve") {
    Curve curve;
    curve.add(100, 1), curve.add(200, 2), curve.add(400, 4);
    CHECK(steadied(curve).points().size() == 3);
    CHECK(steadied(curve).at(4000) == doctest::Approx(40));
    // A long call that was as fast as a shorter one says nothing about those that are longer still.
    Curve chance;
    chance.add(100, 1), chance.add(200, 5), chance.add(400, 4);
    CHECK(steadied(chance).at(300) == doctest::Approx(5));
    CHECK(steadied(chance).at(400) == doctest::Approx(5));
    CHECK(steadied(chance).at(1000) == doctest::Approx(5 + 600 * 4. / 300));
    CHECK(steadied(chance).at(100'000) == doctest::Approx(5 + 99'600 * 4. / 300));
    CHECK(steadied(Curve()).empty());
  }

  TEST_CASE("a profile in a file") {
    ClusterShape shape = slow_links(4);
    shape.latency_s = 1e-6;
    ClusterProfile profile = profile_of(shape, kFree);
    Curve& curve = profile.codecs[kBytes].calls["allgather"];
    curve.add(1, 0.5), curve.add(2, 0.75);
    const std::string text = profile.json().dump();
    const ClusterProfile again = ClusterProfile::parse(text);
    CHECK(again.measured);
    CHECK(again.json().dump() == text);
    using Json = nlohmann::json;
    const auto refused = [&](const std::string& path, const Json& value) {
      Json changed = Json::parse(text);
      changed[Json::json_pointer(path)] = value;
      try {
        ClusterProfile::parse(changed.dump());
      } catch (const std::runtime_error&) {
        return true;
      }
      return false;
    };
    CHECK(!refused("/ranks", 4));
    for (const Json& bad : {Json(1), Json(-4), Json(1.5), Json("4"), Json(), Json(1ull << 40)})
      CHECK(refused("/ranks", bad));
    CHECK(refused("/nodes", 5));
    CHECK(refused("/crimp_profile", 2));
    CHECK(refused("/network/plain", Json::array()));
    CHECK(refused("/network/plain/0/s", -1));
    CHECK(refused("/network/plain/0/bytes", 1e300));
    CHECK(refused("/network/alltoall/0", "x"));
    CHECK(refused("/codecs", 7));
    CHECK(refused("/codecs/" + kBytes + "/encode_s", nullptr));
    CHECK(refused("/codecs/" + kBytes + "/calls/allgather", Json::array()));
    for (const char* none : {"", "{}", "[]", "7", "{\"crimp_profile\": 1}"})
      CHECK_THROWS_AS(ClusterProfile::parse(none), std::runtime_error);
    CHECK_THROWS_AS(ClusterProfile::read("/nonexistent"), Error);
  }
}
