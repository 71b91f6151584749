// SIDCo: its mathematics against the C library, its estimators at points with known answers, and what it selects.
#include "codec/sparse/sidco.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "codec/codec.hpp"
#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("sidco") {
  namespace {

  double sent(const std::string& spec, const std::vector<float>& a) {
    const Selection s = make_codec(spec)->select(a.data(), nullptr, a.size(), {});
    std::size_t n = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      n += std::fabs(a[i]) > s.up || (std::fabs(a[i]) == s.up && i < s.up_ties);
    return static_cast<double>(n);
  }

  }  // namespace

  TEST_CASE("log, exp and the gamma functions agree with the C library") {
    const Random random(3, 0);
    for (std::uint32_t i = 0; i < 20000; ++i) {
      const double x =
          std::ldexp(1.0 + random.bits(2 * i) * 0x1p-32, static_cast<int>(random.bits(2 * i + 1) % 600) - 300);
      CHECK(std::fabs(sidco::log_of(x) - std::log(x)) <= 4e-16 * std::fmax(std::fabs(std::log(x)), 0.5));
      const double y = (random.bits(i) * 0x1p-32 - 0.5) * (i % 2 ? 1400 : 2);
      CHECK(std::fabs(sidco::exp_of(y) / std::exp(y) - 1) < 4e-15);
      const double s = std::ldexp(1.0 + random.bits(i) * 0x1p-32, static_cast<int>(i % 14) - 7);
      CHECK(std::fabs(sidco::log_gamma(s) - std::lgamma(s)) < 1e-12 * std::fmax(1.0, std::fabs(std::lgamma(s))));
    }
    CHECK(sidco::log_of(1.0) == 0.0);
    CHECK(sidco::exp_of(0.0) == 1.0);
    // P(1, x) = 1 - exp(-x); P(1/2, x) = erf(sqrt x); medians of the chi-square distribution with 2 s degrees, halved.
    CHECK(sidco::gamma_quantile(1.0, 0.75) == doctest::Approx(std::log(4.0)).epsilon(1e-12));
    CHECK(std::erf(std::sqrt(sidco::gamma_quantile(0.5, 0.75))) == doctest::Approx(0.75).epsilon(1e-12));
    CHECK(sidco::gamma_quantile(5.0, 0.5) == doctest::Approx(4.670908882795985).epsilon(1e-12));
    CHECK(sidco::gamma_quantile(1.0 / 64, 0.999) == doctest::Approx(1.8241).epsilon(1e-4));
  }

  TEST_CASE("the estimators are exact on their own distribution's moments") {
    const double rho = 0.01;
    // Exponential of mean 2 above 1.
    CHECK(sidco::exponential_tail({1.0, 1000, 2000, 8000, 0}, rho) == doctest::Approx(1 - 2 * std::log(rho)));
    // Generalised Pareto with shape -k, scale s: mean s / (1 + k), variance s^2 / ((1 + k)^2 (1 + 2 k)).
    for (const double k : {-0.3, -0.1, 0.2, 0.9}) {
      const double s = 3, mean = s / (1 + k), variance = mean * mean / (1 + 2 * k);
      CHECK(sidco::pareto_tail({0.5, 100, 100 * mean, 100 * (variance + mean * mean), 0}, rho) ==
            doctest::Approx(0.5 + s * (1 - std::pow(rho, k)) / k));
    }
    // Where the variance is that of an exponential, or there is none, both say the same.
    const sidco::Moments even{0.5, 100, 200, 800, 0}, none{0.5, 100, 200, 400, 0};
    CHECK(sidco::pareto_tail(even, rho) == sidco::exponential_tail(even, rho));
    CHECK(sidco::pareto_tail(none, rho) == sidco::exponential_tail(none, rho));
    // Gamma of shape 1 is the exponential: mean of ln x is ln(mean) - 0.5772. The formula for the shape is an
    // approximation of 1.5 %.
    CHECK(sidco::gamma_tail({0, 1000, 2000, 0, 1000 * (std::log(2.0) - 0.5772156649)}, 0.25) ==
          doctest::Approx(2 * std::log(4.0)).epsilon(0.02));
  }

  TEST_CASE("about k elements on gradients' distributions, whatever the scale") {
    for (const char* dist : {"exp", "gp", "gamma"})
      for (const char* stages : {"1", "2", "4"})
        for (const char* ratio : {"0.1", "0.01", "0.001"})
          for (const Data data : {Data::normal, Data::laplace, Data::tiny, Data::huge, Data::subnormal}) {
            const std::string spec = std::string("sidco:dist=") + dist + ",stages=" + stages + ",ratio=" + ratio;
            CAPTURE(spec);
            CAPTURE(name_of(data));
            const auto a = make_data(data, 4, 200000);
            const double k = std::round(std::stod(ratio) * 200000), n = sent(spec, a);
            CHECK(n >= 0.5 * k);
            CHECK(n <= 2 * k);
          }
  }

  TEST_CASE("with two stages the exponential fit is within 20 % of k on normal and laplace values") {
    for (const Data data : {Data::normal, Data::laplace}) {
      const double n = sent("sidco", make_data(data, 9, 655360));
      CHECK(n > 0.8 * 6554);
      CHECK(n < 1.2 * 6554);
    }
  }

  TEST_CASE("sparse gradients: shares are of what is not zero, and with too few of them all are sent") {
    const auto a = make_sparse(0.005, 3, 100000);
    std::size_t nonzero = 0;
    for (const float x : a) nonzero += x != 0.0f;
    CHECK(sent("sidco", a) == static_cast<double>(nonzero));
    const double n = sent("sidco:ratio=0.001", a);
    CHECK(n >= 50);
    CHECK(n <= 200);
  }

  TEST_CASE("distributions that fit nothing end in the exact selection") {
    std::vector<float> a(50000, 1e-3f);
    for (std::size_t i = 0; i < 5; ++i) a[i * 9999] = 1e6f;
    for (const char* dist : {"exp", "gp", "gamma"})
      CHECK(sent(std::string("sidco:dist=") + dist + ",ratio=0.0001", a) == 5);
  }
}
