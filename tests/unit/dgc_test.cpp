// DGC: momentum correction and masking against the paper's formulas, and the sampled threshold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/workers.hpp"
#include "codec/select.hpp"
#include "crimp/payload.hpp"
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
        Shape shape;
        for (const std::size_t c : counts) shape.add_group(c);
        std::vector<float> u(n), v(n), momentum(n), residual(n), scratch(scratch_elements(*codec, n, true));
        Workers workers(threads);
        for (std::uint32_t step = 0; step < 5; ++step) {
          const auto g = make_data(Data::laplace, step, n);
          std::vector<Feedback> feedback;
          for (const Group& group : shape.groups())
            feedback.push_back({residual.data() + group.offset, residual.data() + group.offset, momentum.data() + group.offset, momentum.data() + group.offset});
          std::vector<std::uint8_t> body(shape.body_bound(*codec));
          body.resize(encode_body(*codec, shape, g.data(), feedback, {0, step, 0}, body.data(), scratch.data(), workers));
          std::vector<float> sum(n), expected(n);
          BodyView view;
          REQUIRE(view.open(*codec, shape, body) == "");
          REQUIRE(decode_add(*codec, shape, std::span(&view, 1), {0, step, 0}, sum.data(), false, workers) == -1);
          for (std::size_t i = 0; i < n; ++i) {
            u[i] = codec->memory().momentum * u[i] + g[i];
            v[i] = v[i] + u[i];
          }
          std::size_t begin = 0;
          for (const std::size_t c : counts) {
            std::vector<std::size_t> order(c);
            for (std::size_t i = 0; i < c; ++i) order[i] = begin + i;
            std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return std::fabs(v[x]) > std::fabs(v[y]); });
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
      Shape shape;
      shape.add_group(10500);
      std::vector<float> g(10500, 0.0f), residual(g), momentum(g), scratch(scratch_elements(*codec, g.size(), true));
      g[3] = 1e-13f, g[70] = -2.0f, g[10400] = -1e-13f, g[10499] = 1.0f / 3;
      const Feedback feedback{residual.data(), residual.data(), momentum.data(), momentum.data()};
      std::vector<std::uint8_t> body(shape.body_bound(*codec));
      Workers workers(1);
      encode_body(*codec, shape, g.data(), std::span(&feedback, 1), {}, body.data(), scratch.data(), workers);
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
    CHECK(make_codec("dgc")->memory().kind == MemoryKind::momentum);
    CHECK(make_codec("dgc")->memory().momentum == 0.9f);
    CHECK(make_codec("dgc")->memory().planes() == 2);
  }

  TEST_CASE("a sampled threshold sends within 30 % of k, the same for the same place, and changes with the step") {
    const auto codec = make_codec("dgc:sample=0.01");
    for (const Data data : {Data::normal, Data::laplace, Data::tiny, Data::huge})
      for (const std::size_t count : {5000, 100000, 655360}) {
        CAPTURE(name_of(data));
        CAPTURE(count);
        const auto a = make_data(data, 3, count);
        const Selection s = codec->select(a.data(), nullptr, count, {0, 1, 0});
        const auto sent = static_cast<double>(select::count_above(a.data(), nullptr, count, s.up, select::Side::magnitude));
        CHECK(sent >= 0.7 * 0.01 * static_cast<double>(count) - 1);
        CHECK(sent <= 1.3 * 0.01 * static_cast<double>(count));
        const Selection again = codec->select(a.data(), nullptr, count, {0, 1, 0});
        CHECK(again.up == s.up);
        CHECK(again.down == s.up);
      }
    const auto a = make_data(Data::normal, 3, 655360);
    CHECK(codec->select(a.data(), nullptr, a.size(), {0, 1, 0}).up != codec->select(a.data(), nullptr, a.size(), {0, 2, 0}).up);
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
    const auto sent = select::count_above(a.data(), nullptr, a.size(), s.up, select::Side::magnitude) + (s.up_ties ? 1 : 0);
    CHECK(sent == 10);
  }
}
