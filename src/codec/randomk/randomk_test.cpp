// Random-k: the facts of WIRE_FORMAT.md, section 4.19, and the defects of other implementations.
#include "codec/randomk/randomk.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("randomk") {
  namespace {

  // The elements that a piece of ones sends.
  std::set<std::size_t> drawn(const Codec& codec, std::size_t count, const RandomCounter& counter) {
    std::vector<float> d(count);
    CHECK(codec.decode_add_piece(encode(codec, std::vector<float>(count, 1.0f), counter), count, counter, d.data()));
    std::set<std::size_t> all;
    for (std::size_t i = 0; i < count; ++i)
      if (d[i] != 0.0f) all.insert(i);
    return all;
  }

  }  // namespace

  TEST_CASE("excluded: duplicates, and an index beyond the end; one element of each stratum, sizes exact") {
    for (const char* ratio : {"0.001", "0.01", "0.3", "0.7", "1"}) {
      const auto codec = make_codec(std::string("randomk:ratio=") + ratio);
      for (const std::size_t count : {1, 2, 3, 100, 1001, 10239, 10240})
        for (std::uint32_t step = 0; step < 20; ++step) {
          const auto all = drawn(*codec, count, {count, step, 3});
          const auto k = static_cast<std::uint32_t>(codec->piece_bound(count) / 4);
          REQUIRE(all.size() == k);
          std::uint32_t j = 0;
          for (const std::size_t i : all) {
            CHECK(i >= randomk::begin(j, static_cast<std::uint32_t>(count), k));
            CHECK(i < randomk::begin(j + 1, static_cast<std::uint32_t>(count), k));
            ++j;
          }
        }
    }
    CHECK(make_codec("randomk")->piece_bound(10240) == 408);
    CHECK(make_codec("randomk")->piece_bound(1) == 4);
    CHECK(randomk::element(0, 10240, 1, 0xffffffff) == 10239);
    CHECK(randomk::element(0, 10240, 1, 0) == 0);
  }

  TEST_CASE("the places are the same on all ranks and others in every step and piece") {
    const auto codec = make_codec("randomk");
    const auto base = drawn(*codec, 10240, {0, 4, 0});
    CHECK(drawn(*codec, 10240, {0, 4, 7}) == base);
    std::size_t step = 0, piece = 0;
    for (const std::size_t i : drawn(*codec, 10240, {0, 5, 0})) step += base.contains(i);
    for (const std::size_t i : drawn(*codec, 10240, {10240, 4, 0})) piece += base.contains(i);
    CHECK(step < 12);
    CHECK(piece < 12);
  }

  TEST_CASE("every element is drawn alike often: 40 000 steps, each place within five deviations") {
    const auto codec = make_codec("randomk:ratio=0.1");
    const std::size_t n = 45;  // 5 strata (4.5 rounds up) of 9
    std::vector<float> times(n);
    const Bytes ones = encode(*codec, std::vector<float>(n, 1.0f), {});
    for (std::uint32_t step = 0; step < 40000; ++step)
      CHECK(codec->decode_add_piece(ones, n, {0, step, 0}, times.data()));
    for (const float t : times) CHECK(std::fabs(t - 40000.0f / 9) < 5 * std::sqrt(40000.0f / 9));
  }

  TEST_CASE("scale=1 is unbiased: the mean of many steps is the vector") {
    const auto codec = make_codec("randomk:ratio=0.07,scale=1");
    CHECK_FALSE(codec->traits().biased);
    const std::size_t n = 101;  // 7 strata of 14 and 15
    const auto a = make_data(Data::normal, 5, n);
    std::vector<float> sum(n);
    const std::uint32_t steps = 40000;
    for (std::uint32_t step = 0; step < steps; ++step)
      CHECK(codec->decode_add_piece(encode(*codec, a, {0, step, 0}), n, {0, step, 0}, sum.data()));
    for (std::size_t i = 0; i < n; ++i)
      CHECK(std::fabs(sum[i] / static_cast<float>(steps) - a[i]) <
            5 * std::fabs(a[i]) * std::sqrt(14.0f / static_cast<float>(steps)) + 1e-4f);
  }

  TEST_CASE("sums of payloads are payloads") {
    const auto codec = make_codec("randomk");
    const RandomCounter counter{20480, 9, 0};
    const auto a = make_data(Data::normal, 1, 3000), b = make_data(Data::laplace, 2, 3000);
    const Bytes pa = encode(*codec, a, counter), pb = encode(*codec, b, {20480, 9, 1});
    std::vector<float> x(pa.size() / 4), y(x.size()), separate(3000), together(3000);
    std::memcpy(x.data(), pa.data(), pa.size());
    std::memcpy(y.data(), pb.data(), pb.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    Bytes sum(pa.size());
    std::memcpy(sum.data(), x.data(), sum.size());
    CHECK(codec->decode_add_piece(pa, 3000, counter, separate.data()));
    CHECK(codec->decode_add_piece(pb, 3000, counter, separate.data()));
    CHECK(codec->decode_add_piece(sum, 3000, counter, together.data()));
    CHECK(difference(separate, together) == "");
    CHECK(codec->traits().summable);
  }

  TEST_CASE("what is scaled stays finite however large the residual is, and no longer grows then") {
    const auto codec = make_codec("randomk:ratio=0.01,scale=1,memory=residual,force=1");
    const std::size_t n = 1000;
    const auto a = make_data(Data::normal, 6, n);
    for (const float size : {0x1p100f, 0x1p115f, 0x1p125f}) {
      std::vector<float> residual(n, size);
      for (std::size_t i = 0; i < n; i += 2) residual[i] = -size;
      for (std::uint32_t step = 0; step < 50; ++step) {
        std::vector<float> d(n);
        const RandomCounter counter{0, step, 0};
        REQUIRE(codec->decode_add_piece(encode(*codec, a, counter, residual.data(), residual.data()), n, counter,
                                        d.data()));
        for (const float x : d) REQUIRE((std::isfinite(10240 * x) && std::fabs(x) <= 0x1p114f));
      }
      for (const float x : residual) CHECK(std::fabs(x) <= std::max(size, 0x1p115f));
    }
  }

  TEST_CASE("memory: the residual by default, none where it is scaled, and there only by force") {
    CHECK(make_codec("randomk")->feedback().kind == FeedbackKind::residual);
    CHECK(make_codec("randomk:scale=1")->feedback().kind == FeedbackKind::none);
    CHECK(make_codec("randomk:scale=1")->spec() == "randomk:ratio=0.01,scale=1");
    CHECK_THROWS_AS(make_codec("randomk:scale=1,memory=residual"), Error);
    const auto forced = make_codec("randomk:scale=1,memory=residual,force=1");
    CHECK(forced->spec() == "randomk:ratio=0.01,scale=1,memory=residual,force=1");
    CHECK(make_codec(forced->spec())->feedback().kind == FeedbackKind::residual);
    CHECK(make_codec("randomk:ratio=0.02")->parameter_word() != make_codec("randomk")->parameter_word());
    CHECK(make_codec("randomk:scale=1")->parameter_word() != make_codec("randomk")->parameter_word());
  }

  TEST_CASE("payloads of another size or with values that are not finite are refused") {
    const auto codec = make_codec("randomk");
    Bytes good = encode(*codec, std::vector<float>(1000, 1.0f), {});
    std::vector<float> out(1000);
    CHECK(codec->decode_add_piece(good, 1000, {}, out.data()));
    for (const float x : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
      Bytes bad = good;
      std::memcpy(bad.data() + 36, &x, 4);
      CHECK_FALSE(codec->decode_add_piece(bad, 1000, {}, out.data()));
    }
    good.pop_back();
    CHECK_FALSE(codec->decode_add_piece(good, 1000, {}, out.data()));
  }
}
