// What error feedback is for: nothing is lost, only late.
#include <doctest/doctest.h>

#include <cmath>

#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("error_feedback") {
  namespace {

  double norm(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
  }

  }  // namespace

  TEST_CASE("decoded sums plus final residuals are the sum of all inputs") {
    for (const auto& codec : all_codecs()) {
      if (codec->traits().diverges_with_residual)
        continue;  // residuals grow without bound, and with them what is rounded
      CAPTURE(codec->spec());
      if (codec->traits().votes) continue;  // a majority is no sum
      const std::uint64_t count = 41700;
      Setup setup{codec, named_layout(count, {20000, 1, 160, 3000}), count};
      auto ranks = make_ranks(setup, 3, 1);
      std::vector<double> inputs(count), outputs(count);
      const int steps = effort(12, 12, 12, 3);
      for (int step = 0; step < steps; ++step) {
        for (std::size_t r = 0; r < 3; ++r) {
          ranks[r].values = make_data(Data::laplace, static_cast<std::uint64_t>(100 * step) + r, count);
          ranks[r].sequence = static_cast<std::uint32_t>(step);
          for (std::size_t i = 0; i < count; ++i) inputs[i] += static_cast<double>(ranks[r].values[i]);
        }
        run_all(setup, ranks);
        CHECK(difference(ranks[1].out, ranks[0].out) == "");
        CHECK(difference(ranks[2].out, ranks[0].out) == "");
        for (std::size_t i = 0; i < count; ++i) outputs[i] += static_cast<double>(ranks[0].out[i]);
      }
      double worst = 0, largest = 0;
      for (std::size_t i = 0; i < count; ++i) {
        double left = outputs[i];
        for (const auto& r : ranks) {
          left += static_cast<double>(r.residual[i]);
          largest = std::max(largest, std::fabs(static_cast<double>(r.residual[i])));
        }
        worst = std::max(worst, std::fabs(left - inputs[i]));
      }
      // A hundred float32 roundings of values up to 30, or of the residuals where they grow beyond
      // (traits.diverges_with_residual).
      CHECK(worst < 2e-4 * std::max(1.0, largest / 30));
    }
  }

  TEST_CASE("residuals stay bounded and grow with s") {
    const std::uint64_t count = 20000;
    double last = 0;
    for (const char* s : {"1", "1.5", "1.9"}) {
      Setup setup{make_codec(std::string("3lc:s=") + s), named_layout(count, {count}), count};
      auto ranks = make_ranks(setup, 1, 1);
      double gradient = 0, residual = 0, earlier = 0;
      for (int step = 0; step < 60; ++step) {
        ranks[0].values = make_data(Data::normal, 7000 + static_cast<std::uint64_t>(step), count);
        run_all(setup, ranks);
        gradient = norm({ranks[0].values.begin(), ranks[0].values.end()});
        residual = norm({ranks[0].residual.begin(), ranks[0].residual.end()});
        if (step == 30) earlier = residual;
      }
      // The reference's figures for Gaussian noise after 60 steps: 1.9, 4.9 and 6.7 times the gradient.
      const double ratio = residual / gradient, figure = s[1] == '\0' ? 1.9 : s[2] == '5' ? 4.9 : 6.7;
      CAPTURE(std::string(s));
      CHECK(ratio == doctest::Approx(figure).epsilon(0.2));
      CHECK(ratio > last);
      CHECK(residual < 2 * earlier);
      last = ratio;
    }
  }

  TEST_CASE("gradient descent reaches the optimum with error feedback and does not without") {
    // Every rank pulls towards its own point; the optimum is their mean. Constant steps, so that what is lost for good
    // shows.
    const std::uint64_t count = 2000;
    const auto distance = [&](bool feedback) {
      Setup setup{make_codec("3lc:s=1.5"), named_layout(count, {1500, 500}), count};
      setup.feedback = feedback;
      auto ranks = make_ranks(setup, 3, 1);
      std::vector<std::vector<float>> goals;
      for (std::uint64_t r = 0; r < 3; ++r) goals.push_back(make_data(Data::laplace, r, count));
      std::vector<float> x(count);
      for (std::uint32_t step = 0; step < 800; ++step) {
        const float rate = step < 400 ? 0.05f : 0.01f;
        for (std::size_t r = 0; r < 3; ++r)
          for (std::size_t i = 0; i < count; ++i) ranks[r].values[i] = x[i] - goals[r][i];
        run_all(setup, ranks);
        for (std::size_t i = 0; i < count; ++i) x[i] -= rate / 3 * ranks[0].out[i];
      }
      std::vector<double> off(count);
      for (std::size_t i = 0; i < count; ++i)
        off[i] = static_cast<double>(x[i] - (goals[0][i] + goals[1][i] + goals[2][i]) / 3);
      return norm(off) / std::sqrt(static_cast<double>(count));
    };
    const double with = distance(true), without = distance(false);
    CHECK(with < 0.1);
    CHECK(without > 3 * with);
  }

  TEST_CASE("gamma: p = beta r + gamma g (GRACE), and owners of sums have it once") {
    const std::uint64_t count = 30000;
    for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot})
      for (const bool all : {false, true}) {
        // Everything is sent, or the one element that is the largest of each rank's, of sums, and in every step.
        Setup setup{make_codec(std::string("topk:gamma=0.5,decay=0.25,ratio=") + (all ? "1" : "0.00001")),
                    named_layout(count, {count}), count};
        setup.algorithm = algorithm;
        auto ranks = make_ranks(setup, 2, 1);
        std::vector<double> r(count);
        for (std::uint32_t step = 0; step < 3; ++step) {
          for (auto& rank : ranks) {
            for (std::size_t i = 0; i < count; ++i) rank.values[i] = i == 7 ? 64.0f : 1.0f + static_cast<float>(i % 4);
            rank.sequence = step;
          }
          run_all(setup, ranks);
          for (std::size_t i = 0; i < count; ++i) {
            const double p = 0.25 * r[i] + 0.5 * static_cast<double>(ranks[0].values[i]);
            const bool sent = all || i == 7;
            if (algorithm == Algorithm::allgather || all || i == 7)
              REQUIRE(static_cast<double>(ranks[0].out[i]) == (sent ? 2 * p : 0.0));
            if (algorithm == Algorithm::allgather)
              REQUIRE(static_cast<double>(ranks[0].residual[i]) == (sent ? 0.0 : p));
            r[i] = sent ? 0.0 : p;
          }
        }
      }
  }

  TEST_CASE("momentum is forgotten where its value is sent: a gradient that is sent whole comes back in every step") {
    const std::uint64_t count = 30000;
    for (const char* spec : {"3lc:memory=momentum", "fp16:memory=momentum", "8bit:memory=momentum",
                             "topk:ratio=1,memory=momentum", "dgc:ratio=1"})
      for (const Algorithm algorithm : {Algorithm::allgather, Algorithm::two_shot}) {
        Setup setup{make_codec(spec), named_layout(count, {count}), count};
        setup.algorithm = algorithm;
        CAPTURE(text_of(setup));
        auto ranks = make_ranks(setup, 2, 1);
        for (auto& rank : ranks) {
          rank.residual.resize(setup.codec->feedback_elements(count));
          for (std::size_t i = 0; i < count; ++i) rank.values[i] = i % 2 ? 1.0f : -1.0f;
        }
        for (std::uint32_t step = 0; step < 4; ++step) {
          for (auto& rank : ranks) rank.sequence = step;
          run_all(setup, ranks);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i)
            wrong += std::fabs(ranks[0].out[i] - 2 * ranks[0].values[i]) > 1e-3f;  // 8bit's scale is rounded
          CHECK(wrong == 0);
        }
      }
  }

  TEST_CASE("what owners of sums do not send is not lost where ranks keep a momentum, either") {
    const std::uint64_t count = 30000;
    // Without weight on the momentum before, v is all that waits.
    Setup setup{make_codec("topk:ratio=0.01,memory=momentum,momentum=0"), named_layout(count, {count}), count};
    setup.algorithm = Algorithm::two_shot;
    auto ranks = make_ranks(setup, 3, 1);
    std::vector<double> missing(count);
    for (auto& rank : ranks) rank.residual.resize(setup.codec->feedback_elements(count));
    for (std::uint32_t step = 0; step < 3; ++step) {
      for (std::size_t r = 0; r < 3; ++r) {
        ranks[r].values = make_data(Data::laplace, 10 * step + r, count);
        ranks[r].sequence = step;
        for (std::size_t i = 0; i < count; ++i) missing[i] += static_cast<double>(ranks[r].values[i]);
      }
      run_all(setup, ranks);
      for (std::size_t i = 0; i < count; ++i) missing[i] -= static_cast<double>(ranks[0].out[i]);
    }
    CHECK(norm(missing) > 1);
    for (const auto& rank : ranks) {
      for (std::size_t i = 0; i < count; ++i) missing[i] -= static_cast<double>(rank.residual[i]);
      for (std::size_t i = 0; i < rank.owner_residual.size(); ++i)
        missing[i] -= static_cast<double>(rank.owner_residual[i]);
    }
    for (const double m : missing) REQUIRE(std::fabs(m) < 1e-4);
  }
}
