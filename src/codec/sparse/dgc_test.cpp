// DGC: momentum correction and masking against the paper's formulas, and the sampled threshold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/select.hpp"
#include "codec/exact_feedback.hpp"
#include "codec/payload.hpp"
#include "core/convert.hpp"
#include "core/error.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("dgc") {
  TEST_CASE("momentum correction with masking over several steps, as in the paper") {
    for (const char* spec : {"dgc:ratio=0.02", "dgc:ratio=0.02,momentum=0.5"})
      for (const int threads : {1, 2}) {
        const auto codec = make_codec(spec);
        const std::size_t counts[] = {12000, 7, 3000}, n = 15007;
        ChunkPartition partition;
        for (const std::size_t c : counts) partition.add_group(c);
        std::vector<float> u(n), v(n), momentum(n), residual(n), scratch(scratch_elements(*codec, n, true));
        Workers workers(threads);
        for (std::uint32_t step = 0; step < 5; ++step) {
          const auto g = make_data(Data::laplace, step, n);
          std::vector<FeedbackView> feedback;
          for (const Group& group : partition.groups())
            feedback.push_back({residual.data() + group.offset, residual.data() + group.offset,
                                momentum.data() + group.offset, momentum.data() + group.offset});
          std::vector<std::uint8_t> body(partition.body_bound(*codec));
          body.resize(
              encode_body(*codec, partition, g.data(), feedback, {0, step, 0}, body.data(), scratch.data(), workers));
          std::vector<float> sum(n), expected(n);
          BodyView view;
          REQUIRE(view.open(*codec, partition, body) == "");
          REQUIRE(decode_add(*codec, partition, std::span(&view, 1), {0, step, 0}, sum.data(), false, workers) == -1);
          for (std::size_t i = 0; i < n; ++i) {
            u[i] = codec->feedback().momentum * u[i] + g[i];
            v[i] = v[i] + u[i];
          }
          std::size_t begin = 0;
          for (const std::size_t c : counts) {
            std::vector<std::size_t> order(c);
            for (std::size_t i = 0; i < c; ++i) order[i] = begin + i;
            std::stable_sort(order.begin(), order.end(),
                             [&](std::size_t x, std::size_t y) { return std::fabs(v[x]) > std::fabs(v[y]); });
            for (std::size_t j = 0; j < std::max<std::size_t>(1, (c * 2 + 50) / 100); ++j) {
              expected[order[j]] = v[order[j]];
              v[order[j]] = u[order[j]] = 0.0f;
            }
            begin += c;
          }
          CHECK(difference(sum, expected) == "");
          CHECK(difference(residual, v) == "");
          CHECK(difference(momentum, u) == "");
        }
      }
  }

  TEST_CASE("what is sent as zero, because it is less than 2^-40 of the largest in the piece, keeps its momentum") {
    for (const char* spec : {"dgc:ratio=0.1,value=f16", "dgc:ratio=0.1"}) {
      const bool half = spec[std::strlen(spec) - 1] == '6';
      const auto codec = make_codec(spec);
      ChunkPartition partition;
      partition.add_group(10500);
      std::vector<float> g(10500, 0.0f), residual(g), momentum(g), scratch(scratch_elements(*codec, g.size(), true));
      g[3] = 1e-13f, g[70] = -2.0f, g[10400] = -1e-13f, g[10499] = 1.0f / 3;
      const FeedbackView feedback{residual.data(), residual.data(), momentum.data(), momentum.data()};
      std::vector<std::uint8_t> body(partition.body_bound(*codec));
      Workers workers(1);
      encode_body(*codec, partition, g.data(), std::span(&feedback, 1), {}, body.data(), scratch.data(), workers);
      CHECK(momentum[70] == 0.0f);
      CHECK(momentum[10499] == 0.0f);
      CHECK(residual[70] == 0.0f);
      for (const std::size_t i : {std::size_t{3}, std::size_t{10400}}) {
        CHECK(momentum[i] == (half ? g[i] : 0.0f));
        CHECK(residual[i] == (half ? g[i] : 0.0f));
      }
    }
  }

  TEST_CASE("the default memory is momentum, of 0.9") {
    CHECK(make_codec("dgc")->feedback().kind == FeedbackKind::momentum);
    CHECK(make_codec("dgc")->feedback().momentum == 0.9f);
    CHECK(make_codec("dgc")->feedback().arrays() == 2);
  }

  TEST_CASE("a sampled threshold sends within 30 % of k, the same for the same place, and changes with the step") {
    const auto codec = make_codec("dgc:sample=0.01");
    for (const Data data : {Data::normal, Data::laplace, Data::tiny, Data::huge})
      for (const std::size_t count : {5000, 100000, 655360}) {
        CAPTURE(name_of(data));
        CAPTURE(count);
        const auto a = make_data(data, 3, count);
        const Selection s = codec->select(a.data(), nullptr, count, {0, 1, 0});
        const auto sent =
            static_cast<double>(select::count_above(a.data(), nullptr, count, s.up, select::Side::magnitude));
        CHECK(sent >= 0.7 * 0.01 * static_cast<double>(count) - 1);
        CHECK(sent <= 1.3 * 0.01 * static_cast<double>(count));
        const Selection again = codec->select(a.data(), nullptr, count, {0, 1, 0});
        CHECK(again.up == s.up);
        CHECK(again.down == s.up);
      }
    const auto a = make_data(Data::normal, 3, 655360);
    CHECK(codec->select(a.data(), nullptr, a.size(), {0, 1, 0}).up !=
          codec->select(a.data(), nullptr, a.size(), {0, 2, 0}).up);
  }

  TEST_CASE("excluded: samples out of range; every count from 1 on and every sample works") {
    for (const char* spec : {"dgc:sample=0.0001", "dgc:sample=0.01", "dgc:sample=0.9999", "dgc:sample=0.5,ratio=1"}) {
      const auto codec = make_codec(spec);
      for (std::size_t count = 1; count < 300; ++count) {
        Guarded<float> a{std::span<const float>(make_data(Data::normal, count, count))};
        const Selection s = codec->select(a.data(), nullptr, count, {count, 7, 1});
        CHECK((s.up >= 0.0f && std::isfinite(s.up)));
        CHECK(select::count_above(a.data(), nullptr, count, s.up, select::Side::magnitude) + s.up_ties > 0);
      }
    }
  }

  TEST_CASE("a sample that misleads ends in the exact selection") {
    std::vector<float> a(100000);  // one value in 2000 is not zero: the sampled threshold is mostly zero
    for (std::size_t i = 0; i < a.size(); i += 2000) a[i] = 1.0f + static_cast<float>(i);
    const Selection s = make_codec("dgc:sample=0.001,ratio=0.0001")->select(a.data(), nullptr, a.size(), {});
    const auto sent =
        select::count_above(a.data(), nullptr, a.size(), s.up, select::Side::magnitude) + (s.up_ties ? 1 : 0);
    CHECK(sent == 10);
  }

  TEST_CASE(
      "Nesterov's momentum, as in the paper's appendix: u = m (u + g), v = v + u + g, both masked where v is sent") {
    const auto codec = make_codec("dgc:ratio=0.02,nesterov=1");
    CHECK(codec->spec().ends_with(",momentum=0.9,nesterov=1"));
    const std::size_t n = 12000, k = 240;
    ChunkPartition partition;
    partition.add_group(n);
    std::vector<double> u(n), v(n);
    std::vector<float> memory(2 * n), scratch(scratch_elements(*codec, n, true));
    Workers workers(1);
    for (std::uint32_t step = 0; step < 8; ++step) {
      const auto g = make_data(Data::laplace, 40 + step, n);
      const FeedbackView feedback = feedback_of(*codec, memory.data(), 2, n, 0);
      std::vector<std::uint8_t> body(partition.body_bound(*codec));
      body.resize(encode_body(*codec, partition, g.data(), std::span(&feedback, 1), {0, step, 0}, body.data(),
                              scratch.data(), workers));
      std::vector<float> sum(n);
      BodyView view;
      REQUIRE(view.open(*codec, partition, body) == "");
      REQUIRE(decode_add(*codec, partition, std::span(&view, 1), {0, step, 0}, sum.data(), false, workers) == -1);
      std::size_t sent = 0, wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        u[i] = 0.9 * (u[i] + static_cast<double>(g[i]));
        v[i] += u[i] + static_cast<double>(g[i]);
        const double got = static_cast<double>(sum[i]);
        if (got != 0) {
          ++sent;
          wrong += std::fabs(got - v[i]) > 1e-5 * (1 + std::fabs(v[i]));
          u[i] = v[i] = 0;
        }
        wrong += std::fabs(static_cast<double>(memory[i]) - v[i]) > 1e-5 * (1 + std::fabs(v[i]));
        wrong += std::fabs(static_cast<double>(memory[n + i]) - u[i]) > 1e-5 * (1 + std::fabs(u[i]));
      }
      CHECK(sent == k);
      CHECK(wrong == 0);
    }
  }

  TEST_CASE(
      "warm-up: 25, 6.25, 1.5625 and 0.390625 % in a quarter of the turns each, never less than the ratio; without a memory by the communicator's calls") {
    const std::size_t n = 20000;
    const auto g = make_data(Data::laplace, 5, n);
    const auto sent = [&](const char* spec, std::uint32_t turn) {
      const auto codec = make_codec(spec);
      const Selection s = codec->select_in_turn(g.data(), nullptr, n, {0, 77, 0}, turn);
      return select::count_above(g.data(), nullptr, n, s.up, select::Side::magnitude) + (s.up_ties ? 1 : 0);
    };
    const std::size_t of_8[] = {5000, 5000, 1250, 1250, 313, 313, 78, 78, 20, 20};
    for (std::uint32_t turn = 0; turn < 10; ++turn) CHECK(sent("dgc:ratio=0.001,warmup=8", turn) == of_8[turn]);
    const std::size_t of_6[] = {5000, 5000, 1250, 313,
                                313,  200,  200};  // stages of one or two turns; the last one would be below 1 %
    for (std::uint32_t turn = 0; turn < 7; ++turn) CHECK(sent("dgc:ratio=0.01,warmup=6", turn) == of_6[turn]);
    for (const std::uint32_t turn : {0u, 1u, 4000000000u}) CHECK(sent("dgc:ratio=0.01", turn) == 200);
    for (const std::uint32_t turn : {2147483647u, 2147483648u})
      CHECK(sent("dgc:ratio=0.001,warmup=2147483648", turn) == (turn < 2147483648u ? 78 : 20));
    CHECK(sent("dgc:ratio=0.5,warmup=8", 0) == 10000);

    const auto codec = make_codec("dgc:ratio=0.001,warmup=8,memory=none");
    CHECK(codec->parameter_word() == make_codec("dgc:ratio=0.001")->parameter_word());  // receivers need not know
    ChunkPartition partition;
    partition.add_group(n);
    Workers workers(1);
    for (const std::uint32_t step : {1u, 3u, 9u}) {
      std::vector<std::uint8_t> body(partition.body_bound(*codec));
      std::vector<float> sum(n);
      body.resize(encode_body(*codec, partition, g.data(), {}, {0, step, 0}, body.data(), nullptr, workers));
      BodyView view;
      REQUIRE(view.open(*codec, partition, body) == "");
      REQUIRE(decode_add(*codec, partition, std::span(&view, 1), {}, sum.data(), false, workers) == -1);
      CHECK(std::count_if(sum.begin(), sum.end(), [](float x) { return x != 0.0f; }) == (step == 1   ? 5000
                                                                                         : step == 3 ? 1250
                                                                                                     : 20));
    }
  }

  TEST_CASE("parameters of its memory that are none are refused") {
    for (const char* spec :
         {"dgc:warmup=1.5", "dgc:warmup=-1", "dgc:clip=-1", "dgc:nesterov=2", "dgc:memory=residual,clip=1",
          "dgc:memory=none,clip=1", "topk:nesterov=1", "topk:memory=momentum,clip=2", "3lc:gamma=0", "3lc:gamma=1.5",
          "dgc:gamma=0.5", "powersgd:gamma=0.5"}) {
      CAPTURE(std::string(spec));
      CHECK_THROWS_AS(make_codec(spec), const Error&);
    }
    CHECK(make_codec("3lc:gamma=0.5,decay=0.25")->spec() ==
          "3lc:s=1,zero_run=1,entropy=0,scale=piece,decay=0.25,gamma=0.5");
    CHECK(make_codec("topk:memory=momentum,nesterov=1")->spec().ends_with(",memory=momentum,momentum=0.9,nesterov=1"));
    CHECK(make_codec("dgc:clip=2.5")->spec() == "dgc:ratio=0.01,sample=1,warmup=0,clip=2.5,value=f32,momentum=0.9");
    CHECK(make_codec("dgc:clip=2.5")->feedback().clip == 2.5f);
    CHECK(make_codec("terngrad:clip=2.5")->feedback().clip == 0.0f);  // its own
  }

  TEST_CASE("what is sent exactly has plain momentum, in every type; what rounding to the type loses comes later") {
    for (const bool nesterov : {false, true}) {
      const auto codec = make_codec(nesterov ? "dgc:nesterov=1" : "dgc");
      const std::size_t n = 2500;
      for (const Dtype type : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
        std::vector<float> memory(2 * n), values(n);
        std::vector<double> u(n), exact(n), got(n);
        for (std::uint64_t step = 0; step < 25; ++step) {
          auto g = make_data(Data::normal, 60 + step, n);
          std::vector<char> there(n * size_of(type));
          if (type == Dtype::f64) {
            for (std::size_t i = 0; i < n; ++i) reinterpret_cast<double*>(there.data())[i] = static_cast<double>(g[i]);
          } else {
            narrow(type, g.data(), there.data(), n);
            widen(type, there.data(), g.data(), n);
          }
          compensate_exactly(codec->feedback(), type, there.data(), n, memory.data(), 0.5);
          widen(type, there.data(), values.data(), n);
          double last = 0;
          for (std::size_t i = 0; i < n; ++i) {
            const double x = 0.5 * static_cast<double>(g[i]);
            u[i] = nesterov ? 0.9 * (u[i] + x) : 0.9 * u[i] + x;
            exact[i] += nesterov ? u[i] + x : u[i];
            got[i] += static_cast<double>(values[i]);
            last = std::max(last, std::fabs(exact[i] - got[i]));
          }
          // Up to 25 x 10 values of 4: half a unit of the type's last place in 32 waits, for the others float32 adds
          // up.
          CHECK(last < (type == Dtype::bf16 ? 32 * 0x1p-9 : type == Dtype::f16 ? 32 * 0x1p-12 : 2e-4));
        }
      }
      std::vector<float> memory{0, 0, 1, 2}, values{NAN, 5};
      compensate_exactly(codec->feedback(), Dtype::f32, values.data(), 2, memory.data(), 1.0);
      CHECK(std::isnan(values[0]));
      CHECK((values[1] == 5.0f && memory[2] == 1.0f && memory[3] == 2.0f && memory[0] == 0.0f));
    }
  }

  TEST_CASE("the next exact sum has what waited of a tensor, once") {
    const auto codec = make_codec("dgc");
    for (const Dtype type : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
      std::vector<float> memory{4, -0.5f, 0, 0}, got(2);
      for (const float times : {1.0f, 0.0f, 0.0f}) {
        alignas(double) char values[2 * sizeof(double)] = {};
        compensate_exactly(codec->feedback(), type, values, 2, memory.data(), 1.0);
        widen(type, values, got.data(), 2);
        CHECK(got == std::vector<float>{4 * times, -0.5f * times});
      }
    }
  }

  TEST_CASE("what is beyond float16 is sent as its largest, and the rest waits") {
    const auto codec = make_codec("dgc");
    std::vector<float> memory(4), got(2);
    double waits = 0, u = 0;
    for (int step = 0; step < 6; ++step) {
      const float gradient[] = {step < 2 ? 60000.0f : 0.0f, step < 2 ? -60000.0f : 0.0f};
      std::uint16_t values[2];
      narrow(Dtype::f16, gradient, values, 2);
      compensate_exactly(codec->feedback(), Dtype::f16, values, 2, memory.data(), 1.0);
      widen(Dtype::f16, values, got.data(), 2);
      u = 0.9 * u + static_cast<double>(gradient[0]);
      waits += u - static_cast<double>(got[0]);
      CHECK(got[0] == (step == 0 ? 60000.0f : 65504.0f));
      CHECK(got[1] == -got[0]);
      CHECK(memory[0] == doctest::Approx(waits).epsilon(1e-5));
    }
  }

  TEST_CASE("clipping scales to the norm, up to 1") {
    const float x[] = {3, 0, -4};
    CHECK(clip_gain(Dtype::f32, x, 3, 2.5) == 0.5);
    CHECK(clip_gain(Dtype::f32, x, 3, 5.0) == 1.0);
    CHECK(clip_gain(Dtype::f32, x, 3, 100.0) == 1.0);
    const double y[] = {3e160, 4e160};
    CHECK(clip_gain(Dtype::f64, y, 2, 1.0) == 1.0);  // whose square is beyond double, and the codec's range anyway
    const double z[] = {3e100, 4e100};
    CHECK(clip_gain(Dtype::f64, z, 2, 1e100) == doctest::Approx(0.2));
    const float bad[] = {INFINITY, 1};
    CHECK(clip_gain(Dtype::f32, bad, 2, 1.0) == 1.0);
    CHECK(clip_gain(Dtype::f32, nullptr, 0, 1.0) == 1.0);
    std::vector<float> ones(10000, 1.0f);
    CHECK(clip_gain(Dtype::f32, ones.data(), ones.size(), 1.0) == 0.01);
  }
}
