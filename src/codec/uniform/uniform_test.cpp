// QSGD, TernGrad and max-min: the facts of WIRE_FORMAT.md, sections 4.0, 4.5, 4.6 and 4.14, each on its own, and the
// field's defects excluded.
#include "codec/uniform/uniform.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "codec/codec.hpp"
#include "codec/coding/bit_pack.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("uniform") {
  namespace {

  bool legal(const Codec& codec, const Bytes& bytes, std::size_t count) {
    Guarded<float> out(count);
    const bool yes = codec.decode_add_piece(bytes, count, {}, out.data());
    CHECK(out.intact());
    return yes;
  }
  float float_at(const Bytes& bytes, std::size_t at) {
    float x;
    std::memcpy(&x, bytes.data() + at, sizeof x);
    return x;
  }
  Bytes with_float(Bytes bytes, std::size_t at, float x) {
    std::memcpy(bytes.data() + at, &x, sizeof x);
    return bytes;
  }

  // The largest error of the mean of `steps` decodings, in standard errors of it; each(i) is half the width of what an
  // element may decode to.
  double mean_error(const Codec& codec, const std::vector<float>& a, int steps,
                    const std::function<double(std::size_t)>& width) {
    std::vector<double> sum(a.size());
    for (int step = 0; step < steps; ++step) {
      const auto d = decode(codec, encode(codec, a, {0, static_cast<std::uint32_t>(step), 1}), a.size());
      for (std::size_t i = 0; i < a.size(); ++i) sum[i] += static_cast<double>(d[i]);
    }
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      worst = std::max(worst, std::fabs(sum[i] / steps - static_cast<double>(a[i])) / (width(i) / std::sqrt(steps)));
    return worst;
  }

  }  // namespace

  TEST_CASE("codes of every width pack to exactly their bits and come back") {
    for (std::uint32_t bits = 2; bits <= 16; ++bits)
      for (const std::uint32_t m : {1u, 7u, 8u, 9u, 63u, 127u, 128u}) {
        std::vector<std::uint16_t> codes(m);
        for (std::uint32_t i = 0; i < m; ++i)
          codes[i] = static_cast<std::uint16_t>((i * 40503u + 77u) & ((1u << bits) - 1));
        const std::uint32_t w = bit_pack::lanes(0, m);
        CHECK(w == (m + 7) / 8);
        CHECK(bit_pack::packed_bytes(m, bits) == w * bits);
        Guarded<std::uint8_t> bytes(w * bits);
        bit_pack::pack(codes.data(), m, bits, bytes.data());
        CHECK(bytes.intact());
        int wrong = 0;
        for (std::uint32_t i = 0; i < w * 8; ++i)
          wrong += bit_pack::unpack(bytes.data(), w, bits, i) != (i < m ? codes[i] : 0);
        CHECK(wrong == 0);
      }
  }

  TEST_CASE("qsgd sends ceil(log2(2 s + 1)) bits a value and one norm a bucket") {
    const std::pair<int, int> bits[] = {{1, 2},  {2, 3},  {3, 3},   {4, 4},   {7, 4},   {8, 5},    {15, 5},
                                        {16, 6}, {64, 8}, {127, 8}, {128, 9}, {255, 9}, {256, 10}, {32767, 16}};
    for (const auto& [s, b] : bits) {
      const auto codec = make_codec("qsgd:bucket=1024,s=" + std::to_string(s));
      CHECK(codec->piece_bound(10240) == static_cast<std::size_t>(1280 * b + 10 * 4));
      CHECK(codec->piece_bound(1) == static_cast<std::size_t>(b + 4));
    }
    CHECK(make_codec("qsgd")->spec() == "qsgd:s=127,bucket=512");
    CHECK(make_codec("maxmin")->piece_bound(10240) == 5120 + 20 * 8);
    CHECK(make_codec("terngrad")->piece_bound(10240) == 2048 + 4);
  }

  TEST_CASE("qsgd: 3, -4 and zeros have norm 5") {
    const auto codec = make_codec("qsgd:s=5");
    std::vector<float> a(40);
    a[0] = 3.0f;
    a[9] = -4.0f;  // both are levels: no dice
    const Bytes bytes = encode(*codec, a);
    CHECK(float_at(bytes, 0) == 5.0f);
    CHECK(difference(decode(*codec, bytes, 40), a) == "");
    // Four bits, w = 5 lanes: elements 0 and 5 in byte 0 (8 and 5), 9 is lane 4's second.
    CHECK(bytes[4] == 0x58);
    CHECK(bytes[8] == 0x15);
  }

  TEST_CASE("qsgd and terngrad are unbiased, maxmin likewise between the ends") {
    const auto a = make_data(Data::normal, 5, 300);
    const float largest = *std::max_element(a.begin(), a.end()), least = *std::min_element(a.begin(), a.end());
    const auto constant = [](double width) { return [width](std::size_t) { return width; }; };
    // A two-point distribution's deviation is at most half its width; 300 elements at 5 deviations.
    for (const int s : {1, 7, 127}) {
      const auto codec = make_codec("qsgd:s=" + std::to_string(s));
      const double norm = static_cast<double>(float_at(encode(*codec, a), 0));
      CHECK(mean_error(*codec, a, 4000, constant(norm / s / 2)) < 5);
    }
    const double s = static_cast<double>(std::max(largest, -least));
    CHECK(mean_error(*make_codec("terngrad:clip=100"), a, 4000, constant(s / 2 + 0.5)) < 5);
    CHECK(mean_error(*make_codec("maxmin:bits=2"), a, 4000, constant(static_cast<double>(largest - least) / 6)) < 5);
    // Nearest is not: the same bytes every time.
    const auto nearest = make_codec("maxmin:rounding=nearest");
    CHECK(encode(*nearest, a, {0, 1, 0}) == encode(*nearest, a, {0, 2, 3}));
  }

  TEST_CASE("rounding differs between steps, ranks and places: no clock, no shared seed") {
    const auto a = make_data(Data::normal, 6, 500);
    for (const char* spec : {"qsgd:s=1", "terngrad", "maxmin"}) {
      const auto codec = make_codec(spec);
      const Bytes first = encode(*codec, a, {0, 0, 0});
      CHECK(encode(*codec, a, {0, 0, 0}) == first);
      CHECK(encode(*codec, a, {0, 1, 0}) != first);
      CHECK(encode(*codec, a, {0, 0, 1}) != first);
      CHECK(encode(*codec, a, {10240, 0, 0}) != first);
    }
  }

  TEST_CASE("zero, tiny and single values: no division by a zero norm, nothing lost that a level can hold") {
    for (const char* spec : {"qsgd", "qsgd:s=1", "terngrad", "maxmin", "maxmin:rounding=nearest"}) {
      CAPTURE(spec);
      const auto codec = make_codec(spec);
      std::vector<float> residual(700);
      const std::vector<float> zeros(700);
      CHECK(difference(decode(*codec, encode(*codec, zeros, residual.data()), 700), zeros) == "");
      CHECK(difference(residual, zeros) == "");
      for (const float x : {1.0f, -3e-7f, 1e12f, -0x1p50f})
        CHECK(decode(*codec, encode(*codec, {x}), 1)[0] == x);  // GRACE's TernGrad clips a single value to 0
      const auto tiny = make_data(Data::subnormal, 3, 700);
      encode(*codec, tiny, residual.data());
      for (std::size_t i = 0; i < tiny.size(); ++i) CHECK(std::fabs(residual[i]) <= 0x1p-120f);
    }
  }

  TEST_CASE("qsgd's norm is at most 2^63 however large the residual is, which no longer grows then") {
    const auto codec = make_codec("qsgd:s=1,bucket=10240,memory=residual,force=1");
    const std::size_t n = 1000;
    const auto a = make_data(Data::normal, 6, n);
    for (const float size : {0x1p50f, 0x1p60f, 0x1p64f, 0x1p120f}) {
      CAPTURE(size);
      std::vector<float> residual(n, size);
      for (std::size_t i = 0; i < n; i += 2) residual[i] = -size;
      for (std::uint32_t step = 0; step < 50; ++step) {
        const Bytes bytes = encode(*codec, a, {0, step, 0}, residual.data(), residual.data());
        REQUIRE(legal(*codec, bytes, n));
        REQUIRE(float_at(bytes, 0) <= 0x1p63f);
        if (step == 0 && size >= 0x1p60f) REQUIRE(float_at(bytes, 0) == 0x1p63f);
      }
      for (const float x : residual) REQUIRE(std::fabs(x) <= std::max(size, 0x1p64f));
    }
  }

  TEST_CASE("qsgd's noise is that of a bucket, not of a merged buffer") {
    // A layer a thousand times larger than its neighbour leaves the neighbour's error as it was.
    auto a = make_data(Data::normal, 7, 1024);
    const auto alone = decode(*make_codec("qsgd"), encode(*make_codec("qsgd"), a), 1024);
    for (std::size_t i = 0; i < 512; ++i) a[i] *= 1000.0f;
    const auto beside = decode(*make_codec("qsgd"), encode(*make_codec("qsgd"), a), 1024);
    CHECK(std::equal(alone.begin() + 512, alone.end(), beside.begin() + 512));
  }

  TEST_CASE("terngrad clips at 2.5 population deviations and sends the largest of what is left") {
    auto a = make_data(Data::normal, 8, 10240);
    double sum = 0, squares = 0;
    for (const float x : a) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
    const double sigma = std::sqrt(squares / 10240 - sum / 10240 * sum / 10240);
    const auto scale = [&](const std::string& spec) {
      return static_cast<double>(float_at(encode(*make_codec(spec), a), 0));
    };
    CHECK(scale("terngrad") == doctest::Approx(2.5 * sigma).epsilon(1e-5));
    CHECK(scale("terngrad:clip=1") == doctest::Approx(sigma).epsilon(1e-5));
    float peak = 0;
    for (const float x : a) peak = std::max(peak, std::fabs(x));
    CHECK(scale("terngrad:clip=50") == static_cast<double>(peak));
    // Values at the limit or beyond are kept for certain, with their sign.
    const float limit = float_at(encode(*make_codec("terngrad"), a), 0);
    const auto d = decode(*make_codec("terngrad"), encode(*make_codec("terngrad"), a), a.size());
    int wrong = 0, kept = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (std::fabs(a[i]) >= limit) {
        wrong += d[i] != std::copysign(limit, a[i]);
        ++kept;
      }
    CHECK(wrong == 0);
    CHECK(kept > 50);
    // A piece of almost equal values is not clipped to their small deviation.
    CHECK(float_at(encode(*make_codec("terngrad"), {1.0f, 1.001f, 0.999f}), 0) == 1.001f);
  }

  TEST_CASE("maxmin: the ends of a block are levels, the rest is between") {
    for (const char* spec : {"maxmin:bits=2", "maxmin:bits=8", "maxmin:bits=5,rounding=nearest"}) {
      const auto codec = make_codec(spec);
      const auto a = make_data(Data::laplace, 9, 512);
      const auto [least, largest] = std::minmax_element(a.begin(), a.end());
      const Bytes bytes = encode(*codec, a);
      const auto d = decode(*codec, bytes, 512);
      CHECK(float_at(bytes, 0) == *least);
      CHECK(d[static_cast<std::size_t>(least - a.begin())] == *least);
      CHECK(d[static_cast<std::size_t>(largest - a.begin())] == doctest::Approx(*largest).epsilon(1e-6));
    }
    // 0, 1, ..., 15 are the levels of 4 bits.
    std::vector<float> levels;
    for (int i = 0; i < 16; ++i) levels.push_back(static_cast<float>(i));
    const Bytes bytes = encode(*make_codec("maxmin"), levels);
    CHECK(float_at(bytes, 4) == 1.0f);
    CHECK(bytes[8] == 0x20);  // w = 2 lanes: elements 0 and 2
    CHECK(bytes[9] == 0x31);
    CHECK(difference(decode(*make_codec("maxmin"), bytes, 16), levels) == "");
    // Nearest, ties upward.
    CHECK(decode(*make_codec("maxmin:rounding=nearest"),
                 encode(*make_codec("maxmin:rounding=nearest"), {0.0f, 15.0f, 2.5f, 2.49f}), 4)[2] == 3.0f);
  }

  TEST_CASE("scales, codes and padding that the format does not know are refused") {
    for (const char* spec : {"qsgd:s=5", "qsgd:s=127", "qsgd:s=300", "terngrad", "maxmin:bits=3"}) {
      CAPTURE(spec);
      const auto codec = make_codec(spec);
      const Bytes good = encode(*codec, make_data(Data::normal, 3, 129));
      CHECK(legal(*codec, good, 129));
      for (const float scale : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
        CHECK_FALSE(legal(*codec, with_float(good, 0, scale), 129));
      const bool maxmin = std::string_view(codec->traits().name) == "maxmin";
      for (const float scale : {-1.0f, -0.0f})
        CHECK(legal(*codec, with_float(good, 0, scale), 129) == maxmin);  // a least value may be negative
      if (!maxmin) continue;
      for (const float step : {std::nanf(""), HUGE_VALF, -1.0f, -0.0f})
        CHECK_FALSE(legal(*codec, with_float(good, 4, step), 129));
    }
    // A finite scale whose levels are not: 127 times a 127th of the largest number is rounded up beyond it, a third of
    // it is exact.
    constexpr float top = std::numeric_limits<float>::max();
    const auto alone = [&](const char* spec, std::vector<float> side, std::size_t count) {
      Bytes bytes(make_codec(spec)->piece_bound(count));  // without a code that uses them
      for (std::size_t i = 0; i < side.size(); ++i) bytes = with_float(bytes, 4 * i, side[i]);
      return legal(*make_codec(spec), bytes, count);
    };
    for (const std::size_t count : {9, 512}) {
      CHECK(alone("qsgd:s=3", {top}, count));
      CHECK_FALSE(alone("qsgd:s=127", {top}, count));
      CHECK(alone("qsgd:s=127", {top / 2}, count));
      for (const auto& [low, step] : {std::pair{0.0f, top / 14}, {top / 2, top / 29}, {-top, top / 14}})
        CHECK_FALSE(alone("maxmin:bits=4", {low, step}, count));
      for (const auto& [low, step] : {std::pair{0.0f, top / 16}, {top, 0.0f}, {-top, top / 16}})
        CHECK(alone("maxmin:bits=4", {low, step}, count));
    }
    CHECK_FALSE(alone("qsgd:s=127", {1.0f, top}, 513));  // a second block's
    // Codes above 2 s in a full tile, in a short one, and behind the last element. s = 5 leaves 11 to 15, s = 127
    // leaves 255.
    const std::pair<const char*, std::uint8_t> limits[] = {{"qsgd:s=5", 0xaa}, {"qsgd:s=127", 254}};
    for (const auto& [spec, most] : limits) {
      const auto codec = make_codec(spec);
      for (const std::size_t count : {128, 256, 120}) {
        Bytes bytes(codec->piece_bound(count), most);
        bytes = with_float(bytes, 0, 1.0f);
        CHECK(legal(*codec, bytes, count));
        for (std::size_t at = 4; at < bytes.size(); ++at) {
          Bytes bad = bytes;
          ++bad[at];
          CHECK_FALSE(legal(*codec, bad, count));
        }
      }
      Bytes padded(codec->piece_bound(9));  // two lanes, the second with one element
      padded = with_float(padded, 0, 1.0f);
      CHECK(legal(*codec, padded, 9));
      padded.back() = 0x10;
      CHECK_FALSE(legal(*codec, padded, 9));
    }
    const auto terngrad = make_codec("terngrad");
    for (std::size_t at = 4; at < 4 + 34; ++at) {
      Bytes bytes(terngrad->piece_bound(170), 242);
      bytes = with_float(bytes, 0, 1.0f);
      CHECK(legal(*terngrad, bytes, 170));
      bytes[at] = 243;
      CHECK_FALSE(legal(*terngrad, bytes, 170));
    }
  }

  TEST_CASE("illegal parameters are refused with their value and what is legal") {
    for (const char* s : {"0", "32768", "1.5", "-1", "nan"})
      CHECK((has(refusal(std::string("qsgd:s=") + s), s) && has(refusal(std::string("qsgd:s=") + s), "1 to 32767")));
    for (const char* b : {"0", "64", "500", "10368", "nan"})
      for (const char* key : {"qsgd:bucket=", "maxmin:block="})
        CHECK((has(refusal(std::string(key) + b), b) && has(refusal(std::string(key) + b), "multiple of 128")));
    for (const char* b : {"1", "9", "4.5"}) CHECK(has(refusal(std::string("maxmin:bits=") + b), "2 to 8"));
    for (const char* c : {"0", "-1", "1e7", "nan"})
      CHECK(has(refusal(std::string("terngrad:clip=") + c), "<= clip <="));
    CHECK(has(refusal("maxmin:rounding=up"), "stochastic or nearest"));
    for (const char* spec : {"qsgd:memory=residual", "terngrad:memory=residual"}) CHECK(has(refusal(spec), "diverge"));
    for (const char* spec :
         {"qsgd:memory=residual,force=1", "terngrad:memory=residual,force=1", "maxmin:memory=residual"})
      CHECK(has(refusal(spec), "accepted"));
  }

  TEST_CASE("what a receiver must know is in the parameter word") {
    CHECK(make_codec("qsgd:s=300,bucket=1024")->parameter_word() == (300u | 1024u << 16));
    CHECK(make_codec("maxmin:bits=5,block=640")->parameter_word() == (5u | 640u << 8));
    CHECK(make_codec("terngrad:clip=3")->parameter_word() == 0);
  }
}
