// The facts of WIRE_FORMAT.md, section 4.16.
#include "codec/sketchml/sketchml.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("sketchml") {
  TEST_CASE("the example of the format") {
    const std::vector<float> a{0.5f, -1.0f, 0.0f, 0.0f, 3.0f, 2.0f, -0.5f, 0.0f, 1.0f};
    const auto codec = make_codec("sketchml:quantiles=3");
    // Sorted: -1, -0.5, 0 (3 times), 0.5, 1, 2, 3; middles 0, 1, 3, 5, 6, 7, 8 of 9.
    const Bytes bytes = encode(*codec, a);
    CHECK(bytes == piece_of({-0.75f, 0.125f, 2.0f}, {0x8d, 0x00, 0x30, 0x01}));
  }

  TEST_CASE("an element takes the bits of a bucket's number and a piece no more means than elements") {
    for (const auto& [quantiles, bits] : {std::pair{2, 1}, {3, 2}, {4, 2}, {64, 6}, {65, 7}, {128, 7}, {256, 8}}) {
      const auto codec = make_codec("sketchml:quantiles=" + std::to_string(quantiles));
      const auto q = static_cast<std::size_t>(quantiles), b = static_cast<std::size_t>(bits);
      CHECK(codec->piece_bound(10240) == 4 * q + 1280 * b);
      CHECK(codec->piece_bound(1001) == 4 * q + 126 * b);
      CHECK(codec->piece_bound(1) == 4);
      CHECK(codec->piece_bound(2) == 8 + 1);
    }
  }

  TEST_CASE("buckets are filled evenly, ordered, and decode to their means") {
    for (const Data data : {Data::normal, Data::laplace, Data::huge})
      for (const std::uint32_t quantiles : {2u, 64u, 256u}) {
        CAPTURE(name_of(data));
        CAPTURE(quantiles);
        const auto codec = make_codec("sketchml:quantiles=" + std::to_string(quantiles));
        const auto a = make_data(data, 4, 10240);
        const auto d = decode(*codec, encode(*codec, a), a.size());
        std::vector<std::size_t> order(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return a[x] < a[y]; });
        std::size_t largest = 0, buckets = 0;
        double worst = 0;
        for (std::size_t from = 0; from < order.size();) {
          std::size_t to = from;
          double sum = 0;
          while (to < order.size() && d[order[to]] == d[order[from]]) sum += static_cast<double>(a[order[to++]]);
          const double mean = sum / static_cast<double>(to - from), got = static_cast<double>(d[order[from]]);
          worst = std::max(worst, std::fabs(mean - got) / (std::fabs(mean) + 1e-30));
          if (from > 0) CHECK(d[order[from]] > d[order[from - 1]]);
          largest = std::max(largest, to - from);
          ++buckets;
          from = to;
        }
        CHECK(worst < 1e-5);
        CHECK(buckets == quantiles);
        CHECK(largest < 10240 / quantiles + 300);  // a bin of values that agree to 1/128 is not divided
      }
  }

  TEST_CASE("zeros, constants and single elements come back exactly") {
    const auto codec = make_codec("sketchml");
    for (const float x : {0.0f, 1.5f, -0.37f, 0x1p100f, -0x1p-149f, 0x1p-126f})
      for (const std::size_t count : {1, 63, 64, 65, 10240}) {
        const std::vector<float> same(count, x);
        std::vector<float> residual(count, 1.0f);
        CHECK(difference(decode(*codec, encode(*codec, same, residual.data()), count), same) == "");
        CHECK(difference(residual, std::vector<float>(count)) == "");
      }
    // In a sparse piece the zeros stay zeros.
    const auto sparse = make_data(Data::sparse, 6, 10240);
    const auto d = decode(*codec, encode(*codec, sparse), sparse.size());
    int wrong = 0;
    for (std::size_t i = 0; i < sparse.size(); ++i) wrong += sparse[i] == 0.0f && d[i] != 0.0f;
    CHECK(wrong == 0);
    // No more elements than buckets: only values that agree to 1/128 share one.
    const auto few = make_data(Data::normal, 7, 40), back = decode(*codec, encode(*codec, few), 40);
    for (std::size_t i = 0; i < 40; ++i) CHECK(std::fabs(few[i] - back[i]) <= std::fabs(few[i]) / 128);
  }

  TEST_CASE("the sum of a piece is kept") {
    const auto codec = make_codec("sketchml:quantiles=16");
    const auto a = make_data(Data::laplace, 8, 10240);
    const auto d = decode(*codec, encode(*codec, a), a.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(d[i]) - static_cast<double>(a[i]);
    CHECK(std::fabs(sum) < 1e-3);
  }

  TEST_CASE("numbers of buckets that are not there, means that are not finite and padding are refused") {
    const auto codec = make_codec("sketchml:quantiles=3");
    std::vector<float> acc(9);
    const auto legal = [&](const Bytes& bytes) { return codec->decode_add_piece(bytes, 9, {}, acc.data()); };
    CHECK_FALSE(legal(piece_of({1, 2, 3}, {4, 0, 4, 0})));
    CHECK_FALSE(legal(piece_of({1, 2, 3}, {0, 2, 0, 0})));
    CHECK_FALSE(legal(piece_of({1, 2, 3}, {0, 0, 0, 0x80})));
    for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf("")})
      CHECK_FALSE(legal(piece_of({1, bad, 3}, {0, 0, 0, 0})));
    CHECK(difference(acc, std::vector<float>(9)) == "");
    CHECK(legal(piece_of({1, -2, 3}, {4, 0, 8, 1})));
    CHECK(difference(acc, {1, 1, -2, 3, 1, 1, 1, 1, 3}) == "");
  }

  TEST_CASE("the number of quantiles is a whole number from 2 to 256") {
    for (const char* bad : {"1", "0", "-64", "257", "64.5", "nan", "many"}) {
      const std::string spec = std::string("sketchml:quantiles=") + bad;
      std::string what;
      try {
        make_codec(spec);
      } catch (const Error& e) {
        what = e.what();
      }
      CHECK(what.find(std::string("quantiles is '") + bad) != what.npos);
    }
    CHECK(make_codec("sketchml:quantiles=256")->parameter_word() == 256);
    CHECK(make_codec("sketchml")->feedback().kind == FeedbackKind::residual);
  }
}
