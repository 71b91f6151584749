// THC: the paper's tables, test points and figures (reference notes: 3.1, 3.3, 3.4), and the defects of its released
// code.
#include "codec/thc/thc.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("thc") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

  std::vector<int> table(std::uint32_t bits, std::uint32_t g, std::uint32_t clip) {
    const auto t = thc::make_tables(bits, g, clip);
    return {t.value, t.value + t.levels};
  }

  Bytes encode(const Codec& codec, const std::vector<float>& a, const RandomCounter& counter = {},
               float* residual = nullptr) {
    Bytes bytes;
    for (std::size_t at = 0; at < a.size(); at += kPieceElements) {
      const std::size_t n = std::min<std::size_t>(kPieceElements, a.size() - at), begin = bytes.size();
      bytes.resize(begin + codec.piece_bound(n));
      const RandomCounter here{counter.element + at, counter.step, counter.rank};
      CHECK(codec.encode_piece({a.data() + at, nullptr, residual ? residual + at : nullptr, n, here, {}},
                               bytes.data() + begin) == codec.piece_bound(n));
    }
    return bytes;
  }

  // sum += decoded
  void decode(const Codec& codec, const Bytes& bytes, const RandomCounter& counter, std::vector<float>& sum) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < sum.size(); at += kPieceElements) {
      const std::size_t n = std::min<std::size_t>(kPieceElements, sum.size() - at), size = codec.piece_bound(n);
      CHECK(codec.decode_add_piece(std::span(bytes).subspan(begin, size), n, {counter.element + at, counter.step, 0},
                                   sum.data() + at));
      begin += size;
    }
  }

  // |mean over ranks of decoded - a|^2 / |a|^2, every rank having the same values.
  double error(const Codec& codec, const std::vector<float>& a, std::uint32_t ranks = 1, bool same_noise = false) {
    std::vector<float> sum(a.size());
    for (std::uint32_t r = 0; r < ranks; ++r)
      decode(codec, encode(codec, a, {0, 3, same_noise ? 0 : r}), {0, 3, 0}, sum);
    double wrong = 0, right = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = static_cast<double>(a[i]), d = static_cast<double>(sum[i]) / ranks - x;
      wrong += d * d;
      right += x * x;
    }
    return wrong / right;
  }

  }  // namespace

  TEST_CASE("quantiles of the normal distribution") {
    const std::pair<double, double> known[] = {{16, 1.8627},  {32, 2.1539},  {64, 2.4176},  {128, 2.6601},
                                               {256, 2.8856}, {512, 3.0973}, {1024, 3.2972}};
    for (const auto& [clip, t] : known) {
      CHECK(std::fabs(thc::normal_quantile(1 / clip) - t) < 6e-5);
      CHECK(std::erfc(thc::normal_quantile(1 / clip) / std::sqrt(2.0)) == doctest::Approx(1 / clip).epsilon(1e-12));
    }
  }

  TEST_CASE("the released tables") {
    using T = std::vector<int>;
    CHECK(table(4, 30, 32) == T{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30});
    for (const std::uint32_t clip : {128, 256})
      CHECK(table(4, 30, clip) == T{0, 4, 6, 8, 10, 12, 13, 14, 16, 17, 18, 20, 22, 24, 26, 30});
    CHECK(table(4, 34, 32) == T{0, 3, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 31, 34});
    CHECK(table(3, 16, 32) == T{0, 3, 5, 7, 9, 11, 13, 16});
    CHECK(table(3, 34, 32) == T{0, 6, 11, 15, 19, 23, 28, 34});
    CHECK(table(2, 34, 1024) == T{0, 13, 21, 34});
    // With g = 17 the second and the last but one level move, with g = 15 the table is the identity.
    CHECK(table(4, 17, 32) == T{0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17});
    CHECK(table(4, 15, 32) == T{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  }

  TEST_CASE("tables are symmetric and strictly increasing for all legal parameters") {
    for (const std::uint32_t bits : {2, 3, 4})
      for (std::uint32_t g = (1u << bits) - 1; g <= 62; g += g >= 31 ? 2 - g % 2 : 1)
        for (const std::uint32_t clip : {4, 32, 4096}) {
          const auto t = thc::make_tables(bits, g, clip);
          bool good = t.value[0] == 0 && t.value[t.levels - 1] == g;
          for (std::uint32_t i = 0; i < t.levels; ++i)
            good = good && t.value[i] + t.value[t.levels - 1 - i] == static_cast<int>(g) &&
                   (i == 0 || t.value[i] > t.value[i - 1]);
          CAPTURE(bits);
          CAPTURE(g);
          CAPTURE(clip);
          CHECK(good);
        }
  }

  TEST_CASE("the test points: index and probability of the next one") {
    const auto t = thc::make_tables(4, 30, 32);
    struct Point {
      float z;
      std::uint32_t index;
      double up;
    };
    const Point points[] = {{-2, 0, .3572}, {-1, 3, .5179},   {0, 7, .5}, {0.1f, 7, .8482}, {1, 11, .4821},
                            {2, 14, .6428}, {2.1540f, 15, 0}, {7, 15, 0}, {-2.1540f, 0, 0}, {-1e30f, 0, 0}};
    for (const auto& p : points) {
      CAPTURE(p.z);
      int up = 0;
      for (std::uint32_t random = 0; random < 65536; ++random) {
        const std::uint32_t i = thc::quantize(t, p.z, t.to_grid, random);
        REQUIRE((i == p.index || i == p.index + 1));
        up += i > p.index;
      }
      CHECK(std::fabs(up / 65536.0 - p.up) < 1e-4);
    }
    // floor(u) to the lower index
    const std::uint32_t floors[] = {0, 0, 0, 1,  1,  2,  2,  3,  3,  4,  4,  5,  5,  6,  7, 7,
                                    8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 14, 15};
    for (std::uint32_t k = 0; k <= 30; ++k)
      CHECK(thc::quantize(t, static_cast<float>(k) - 15.0f + (k < 30 ? 0.01f : 0.0f), 1.0f, 0) == floors[k]);
  }

  TEST_CASE("stochastic rounding is unbiased between the limits") {
    for (const auto& [bits, g] : {std::pair{4u, 30u}, {4u, 17u}, {4u, 15u}, {4u, 62u}, {3u, 16u}, {2u, 3u}}) {
      const auto t = thc::make_tables(bits, g, 32);
      for (int step = 1; step < 100; ++step) {
        const double u = g * step / 100.0;
        double sum = 0;
        for (std::uint32_t random = 0; random < 65536; ++random)
          sum += t.value[thc::quantize(t, static_cast<float>(u - g / 2.0), 1.0f, random)];
        CHECK(std::fabs(sum / 65536 - u) < 6e-4);
      }
    }
  }

  TEST_CASE("the error has the published variance and clipping shares") {
    struct Figure {
      std::uint32_t bits, g, clip;
      double variance, clipped;
    };
    const Figure figures[] = {{4, 30, 32, .01307, .00727},  {4, 30, 64, .01622, .00315},   {4, 30, 256, .02144, .00062},
                              {4, 34, 32, .01213, .00727},  {4, 34, 1024, .02377, .00013}, {4, 21, 256, .01931, .00062},
                              {3, 7, 32, .06121, .00727},   {2, 3, 32, .33470, .00727},    {4, 15, 32, .01332, .00727},
                              {4, 15, 256, .02458, .00062}, {4, 17, 32, .01253, .00727},   {4, 17, 64, .01521, .00315},
                              {4, 17, 256, .02042, .00062}, {3, 30, 32, .05691, .00727},   {3, 15, 32, .05955, .00727}};
    const auto a = make_data(Data::normal, 7, 1 << 17);
    for (const auto& f : figures) {
      const auto codec = make_codec("thc:bits=" + std::to_string(f.bits) + ",g=" + std::to_string(f.g) +
                                    ",clip=" + std::to_string(f.clip));
      CAPTURE(codec->spec());
      CHECK(error(*codec, a) == doctest::Approx(f.variance + f.clipped).epsilon(0.015));
      // Independent roundings average out, the clipped part does not.
      CHECK(error(*codec, a, 16) == doctest::Approx(f.variance / 16 + f.clipped).epsilon(0.03));
    }
  }

  TEST_CASE("g = 17 beats the released g = 30 at the same limit, g = 15 costs two percent") {
    const auto a = make_data(Data::normal, 8, 1 << 19);
    const double released = error(*make_codec("thc"), a), odd = error(*make_codec("thc:g=17"), a),
                 uniform = error(*make_codec("thc:g=15"), a);
    CHECK(odd < 0.985 * released);
    CHECK(uniform < 1.03 * released);
  }

  TEST_CASE("excluded defect: rounding noise that all ranks share") {
    const auto a = make_data(Data::normal, 9, 1 << 16);
    const auto codec = make_codec("thc");
    CHECK(encode(*codec, a, {0, 3, 0}) != encode(*codec, a, {0, 3, 1}));
    CHECK(error(*codec, a, 8, true) > 0.019);  // what such a defect would do
    CHECK(error(*codec, a, 8) < 0.0095);
  }

  TEST_CASE("excluded defect: one norm for layers of different scale") {
    const auto codec = make_codec("thc");
    auto layers = make_data(Data::normal, 10, 65536);
    for (std::size_t i = 0; i < layers.size(); ++i)
      layers[i] *= std::pow(10.0f, -2.0f * static_cast<float>(i / 6554) / 9);
    double worst = 0;
    // Every layer by itself, not only the large ones that dominate the sum.
    std::vector<float> sum(layers.size());
    decode(*codec, encode(*codec, layers), {}, sum);
    for (std::size_t layer = 0; layer < 10; ++layer) {
      double wrong = 0, right = 0;
      for (std::size_t i = layer * 6554 + 1024; i < std::min<std::size_t>(layers.size(), (layer + 1) * 6554 - 1024);
           ++i) {
        wrong += std::pow(static_cast<double>(sum[i] - layers[i]), 2);
        right += std::pow(static_cast<double>(layers[i]), 2);
      }
      worst = std::max(worst, wrong / right);
    }
    CHECK(worst < 0.026);
    CHECK(error(*codec, layers) == doctest::Approx(.0206).epsilon(0.03));
    auto spikes = make_data(Data::normal, 11, 65536);
    for (std::size_t i = 0; i < 20; ++i) spikes[i * 3277] *= 1000;
    CHECK(error(*codec, spikes) < 0.022);
    CHECK(error(*codec, make_data(Data::laplace, 12, 65536)) == doctest::Approx(.0205).epsilon(0.03));
  }

  TEST_CASE("excluded defect: index 0 of an empty block read as -t_p, and noise in padding") {
    const auto codec = make_codec("thc");
    std::vector<float> a(kPieceElements + 1500), residual(a.size(), 3.0f), sum(a.size());
    for (std::size_t i = 1024; i < 2048; ++i) a[i] = 1.0f;
    a[kPieceElements + 1400] = -2.0f;
    a[5] = -0.0f;
    const Bytes bytes = encode(*codec, a, {}, residual.data());
    decode(*codec, bytes, {}, sum);
    for (std::size_t i = 0; i < a.size(); ++i)
      if ((i < 1024 || i >= 2048) && i < kPieceElements + 1024) {
        REQUIRE(sum[i] == 0.0f);
        REQUIRE(text_of(residual[i]) == text_of(a[i]));
      }
  }

  TEST_CASE("excluded defect: a rotation that is never drawn anew") {
    const auto codec = make_codec("thc");
    std::vector<float> a(1024, 1.0f), y(1024), z(1024);
    float norm;
    thc::rotate(a.data(), nullptr, 1024, {0, 1, 0}, y.data(), &norm);
    CHECK(norm == 32.0f);
    thc::rotate(a.data(), nullptr, 1024, {0, 2, 0}, z.data(), &norm);
    CHECK(y != z);
    thc::rotate(a.data(), nullptr, 1024, {0, 1, 5}, z.data(), &norm);
    CHECK(y == z);  // the same on all ranks
  }

  TEST_CASE("the rotation is H D") {
    for (const std::size_t count : {1, 3, 128, 129, 300, 600, 1024, 2048, 2500, 10240}) {
      const auto a = make_data(Data::normal, count, count), r = make_data(Data::normal, count + 1, count);
      const RandomCounter counter{70000, 9, 4};
      std::vector<float> y(thc::coordinates(count)), norms(thc::blocks(count));
      thc::rotate(a.data(), r.data(), count, counter, y.data(), norms.data());
      double worst = 0;
      for (std::uint32_t b = 0; b < norms.size(); ++b) {
        const std::size_t m = std::min<std::size_t>(1024, count - b * 1024), d = thc::dimension(m);
        double squares = 0;
        for (std::size_t k = 0; k < m; ++k)
          squares += std::pow(static_cast<double>(a[b * 1024 + k] + r[b * 1024 + k]), 2);
        CHECK(static_cast<double>(norms[b]) == doctest::Approx(std::sqrt(squares)).epsilon(1e-6));
        for (std::size_t i = 0; i < d; i += 7) {
          double sum = 0;
          for (std::uint32_t k = 0; k < m; ++k) {
            const bool minus =
                (thc::sign_word(counter, b, k) >> thc::sign_bit(b, k) & 1) != (__builtin_popcountll(i & k) & 1);
            sum += (minus ? -1.0 : 1.0) * static_cast<double>(a[b * 1024 + k] + r[b * 1024 + k]);
          }
          worst = std::max(worst, std::fabs(sum - static_cast<double>(y[b * 1024 + i])) / std::sqrt(squares));
        }
      }
      CAPTURE(count);
      CHECK(worst < 1e-5);
    }
  }

  TEST_CASE("the mean over many steps is the value, but for the clipped share") {
    for (const char* spec : {"thc:clip=4096", "thc:bits=2,g=3,clip=4096"}) {
      const auto codec = make_codec(spec);
      const auto a = make_data(Data::laplace, 13, 1024);
      std::vector<float> sum(1024);
      constexpr std::uint32_t kSteps = 4000;
      for (std::uint32_t step = 0; step < kSteps; ++step)
        decode(*codec, encode(*codec, a, {0, step, 1}), {0, step, 0}, sum);
      double wrong = 0, right = 0;
      for (std::size_t i = 0; i < 1024; ++i) {
        wrong += std::pow(static_cast<double>(sum[i]) / kSteps - static_cast<double>(a[i]), 2);
        right += std::pow(static_cast<double>(a[i]), 2);
      }
      CHECK(wrong / right < 1.1 * error(*codec, a) / kSteps + 1e-5);
    }
  }

  // Of a normal coordinate z cut to [-t, t] the mean of z cut(z) is that of cut'(z) (Stein's lemma): the share that is
  // not clipped.
  TEST_CASE("what is sent is 1 - 1/clip of the values on average") {
    const auto a = make_data(Data::normal, 19, 10240);
    for (const int clip : {4, 32, 4096}) {
      const auto codec = make_codec("thc:memory=none,clip=" + std::to_string(clip));
      std::vector<float> sum(a.size());
      constexpr std::uint32_t kSteps = 40;
      for (std::uint32_t step = 0; step < kSteps; ++step)
        decode(*codec, encode(*codec, a, {0, step, 1}), {0, step, 0}, sum);
      double sent = 0, all = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        sent += static_cast<double>(sum[i]) * static_cast<double>(a[i]) / kSteps;
        all += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      }
      CHECK(sent / all == doctest::Approx(1 - 1.0 / clip).epsilon(0.003));
    }
  }

  TEST_CASE("error feedback returns what is clipped") {
    const auto codec = make_codec("thc:clip=4");  // a tenth of the energy is clipped
    std::vector<float> a(1024), residual(1024), sum(1024);
    for (std::size_t i = 0; i < 1024; ++i) a[i] = i == 17 ? 1.0f : 0.001f;
    constexpr std::uint32_t kSteps = 400;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      Bytes bytes(codec->piece_bound(1024));
      codec->encode_piece({a.data(), residual.data(), residual.data(), 1024, {0, step, 0}, {}}, bytes.data());
      decode(*codec, bytes, {0, step, 0}, sum);
    }
    double wrong = 0;
    for (std::size_t i = 0; i < 1024; ++i)
      wrong += std::pow(static_cast<double>(sum[i]) / kSteps - static_cast<double>(a[i]), 2);
    CHECK(wrong < 1e-4);
  }

  TEST_CASE("sizes: ten blocks in a piece, tails padded to a power of two from 128") {
    const auto codec = make_codec("thc"), three = make_codec("thc:bits=3"), two = make_codec("thc:bits=2");
    CHECK(codec->piece_bound(10240) == 40 + 5120);
    CHECK(three->piece_bound(10240) == 40 + 3840);
    CHECK(two->piece_bound(10240) == 40 + 2560);
    for (const auto& [count, padded] :
         {std::pair{1, 128}, {128, 128}, {129, 256}, {257, 512}, {513, 1024}, {1024, 1024}}) {
      CHECK(codec->piece_bound(static_cast<std::uint64_t>(count)) == 4u + static_cast<unsigned>(padded) / 2);
      CHECK(codec->piece_bound(static_cast<std::uint64_t>(count) + 2048) ==
            12u + 1024 + static_cast<unsigned>(padded) / 2);
    }
  }

  TEST_CASE("very small blocks wait in the residual, very large ones stay finite") {
    const auto codec = make_codec("thc");
    for (const float size : {0x1p-149f, 0x1p-127f, 0x1p-106f, 0x1p-104f, 0x1p-95f, 0x1p-60f, 0x1p-41f, 0x1p-40f,
                             0x1p49f, 0x1p50f, 0x1p90f, 0x1p100f}) {
      CAPTURE(size);
      auto a = make_data(Data::constant, 3, 2048);
      for (float& x : a) x = std::copysign(size, x);
      std::vector<float> residual(2048), sum(2048);
      decode(*codec, encode(*codec, a, {}, residual.data()), {}, sum);
      double wrong = 0;
      for (std::size_t i = 0; i < 2048; ++i) {
        REQUIRE(std::isfinite(sum[i]));
        REQUIRE(residual[i] == a[i] - sum[i]);
        wrong += std::pow(static_cast<double>(residual[i]) / static_cast<double>(size), 2) / 2048;
      }
      CHECK((size * 32 < 0x1p-100f ? wrong == 1.0 : wrong < 0.024));
    }
  }

  TEST_CASE("malformed pieces are refused") {
    const auto codec = make_codec("thc");
    const auto a = make_data(Data::normal, 4, 1100);
    const Bytes good = encode(*codec, a);
    std::vector<float> out(1100), before;
    CHECK(codec->decode_add_piece(good, 1100, {}, out.data()));
    before = out;
    for (const std::size_t block : {0, 1})
      for (const float norm :
           {-1.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::nanf(""), 0x1p-101f, 0x1p-149f, 0x1.1p120f, 0.0f}) {
        Bytes bad = good;
        std::memcpy(bad.data() + 4 * block, &norm, 4);
        CHECK_FALSE(codec->decode_add_piece(bad, 1100, {}, out.data()));
        CHECK(difference(out, before) == "");
      }
    for (const std::size_t size : {good.size() - 1, good.size() + 1, std::size_t{0}}) {
      Bytes bad = good;
      bad.resize(size);
      CHECK_FALSE(codec->decode_add_piece(bad, 1100, {}, out.data()));
    }
    // An empty block has zero bytes.
    Bytes empty = encode(*codec, std::vector<float>(1100));
    CHECK(codec->decode_add_piece(empty, 1100, {}, out.data()));
    for (const std::size_t at : {std::size_t{8}, std::size_t{8 + 511}, std::size_t{8 + 512}, empty.size() - 1}) {
      empty[at] = 1;
      CHECK_FALSE(codec->decode_add_piece(empty, 1100, {}, out.data()));
      empty[at] = 0;
    }
    CHECK(difference(out, before) == "");
  }

  TEST_CASE("what a residual would make grow has none unless forced; with one it stays bounded, whatever the table") {
    for (const char* spec : {"thc:bits=2,g=4,clip=256", "thc:bits=2,g=3,clip=4096"}) {
      CAPTURE(spec);
      CHECK(make_codec(spec)->feedback().kind == FeedbackKind::none);
      CHECK_THROWS_AS(make_codec(std::string(spec) + ",memory=residual"), Error);
      CHECK(make_codec(std::string(spec) + ",memory=residual,force=1")->feedback().kind == FeedbackKind::residual);
    }
    for (const char* spec : {"thc:bits=2,g=4,clip=69", "thc:bits=2,g=3,clip=1800"})
      CHECK(make_codec(spec)->feedback().kind == FeedbackKind::residual);
    CHECK(make_codec("thc:bits=2,g=4,clip=70")->feedback().kind == FeedbackKind::none);
    // Of a share 1/clip beyond the limit t what is cut off is 2 ((1 + t^2) Q(t) - t phi(t)): at clip=4, t = 1.1503.
    const double fine = thc::make_tables(4, 62, 4).error;
    CHECK((fine > 0.1071 && fine < 0.1171));
    CHECK(thc::make_tables(2, 4, 256).error == doctest::Approx(1.373).epsilon(0.001));
    const auto a = make_data(Data::normal, 7, 1024);
    double norm = 0;
    for (const float x : a) norm += static_cast<double>(x) * static_cast<double>(x);
    for (const std::uint32_t bits : {2, 3, 4})
      for (const std::uint32_t g : {3, 4, 6, 9, 15, 30, 62})
        for (const std::uint32_t clip : {4, 64, 91, 512, 4096}) {
          if (g < (1u << bits) - 1) continue;
          const auto codec = make_codec("thc:bits=" + std::to_string(bits) + ",g=" + std::to_string(g) +
                                        ",clip=" + std::to_string(clip));
          if (codec->feedback().kind != FeedbackKind::residual) continue;
          CAPTURE(codec->spec());
          std::vector<float> residual(a.size());
          Bytes bytes(codec->piece_bound(a.size()));
          for (std::uint32_t step = 0; step < 150; ++step) {
            const float sign = step % 2 ? 1.0f : -1.0f;
            std::vector<float> values(a.size());
            for (std::size_t i = 0; i < a.size(); ++i) values[i] = sign * a[(i + 7 * step) % a.size()];
            codec->encode_piece({values.data(), residual.data(), residual.data(), a.size(), {0, step, 0}, {}},
                                bytes.data());
          }
          double left = 0;
          for (const float x : residual) left += static_cast<double>(x) * static_cast<double>(x);
          CHECK(left <= 15 * norm);  // 0.9 / (1 - 0.9) of it, and chance
        }
  }

  TEST_CASE("parameters out of range are refused with value and range") {
    for (const auto& refused : {std::pair{"thc:bits=5", "2 to 4"},
                                {"thc:bits=1", "2 to 4"},
                                {"thc:bits=3.5", "2 to 4"},
                                {"thc:g=14", "3 to 62, at least 2^bits-1"},
                                {"thc:g=33", "above 31 even"},
                                {"thc:g=64", "62"},
                                {"thc:bits=3,g=6", "2^bits-1"},
                                {"thc:clip=3", "4 to 4096"},
                                {"thc:clip=4097", "4 to 4096"},
                                {"thc:clip=nan", "4 to 4096"}}) {
      const std::string spec = refused.first;
      std::string what;
      try {
        make_codec(spec);
      } catch (const Error& e) {
        what = e.what();
      }
      CAPTURE(spec);
      CHECK(what.find(refused.second) != std::string::npos);
    }
    std::set<std::uint32_t> words;
    for (const char* spec : {"thc", "thc:g=17", "thc:bits=3", "thc:clip=33", "thc:clip=4096"})
      words.insert(make_codec(spec)->parameter_word());
    CHECK(words.size() == 5);
  }
}
