// The facts of WIRE_FORMAT.md, section 4.8.
#include "codec/eightbit/eightbit.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "codec/codec.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("eightbit") {
  namespace {

  using Bytes = std::vector<std::uint8_t>;

  // Scale and codes of one piece.
  std::pair<float, Bytes> encode(const std::vector<float>& values, float* residual = nullptr) {
    const auto codec = make_codec("8bit");
    Bytes bytes(codec->piece_bound(values.size()));
    codec->encode_piece({values.data(), nullptr, residual, values.size(), {}, {}}, bytes.data());
    float scale;
    std::memcpy(&scale, bytes.data(), sizeof scale);
    return {scale, {bytes.begin() + 4, bytes.end()}};
  }

  bool decodes(float scale, const Bytes& codes, std::vector<float>& acc) {
    Bytes bytes(4 + codes.size());
    std::memcpy(bytes.data(), &scale, sizeof scale);
    std::copy(codes.begin(), codes.end(), bytes.begin() + 4);
    return make_codec("8bit")->decode_add_piece(bytes, acc.size(), {}, acc.data());
  }

  }  // namespace

  TEST_CASE("the example of the format") {
    const auto [scale, codes] = encode({2.0f, -1.0f, 0.21f, 0.19f, -0.021f, 1e-6f, 1e-7f, 0.0f, -0.0f});
    CHECK(scale == 2.0f);
    CHECK(codes == Bytes{127, 128 + 92, 64, 62, 128 + 32, 1, 0, 0, 128});
    std::vector<float> d(9);
    CHECK(decodes(scale, codes, d));
    CHECK(difference(d, {2.0f, -2 * 0.50078125f, 2 * 0.10703125f, 2 * 0.09578125f, -2 * 0.01140625f, 2 * 5.5e-7f, 0, 0,
                         0}) == "");
  }

  TEST_CASE("the table grows, every entry keeps its code, and the lines meet at the powers of ten") {
    const auto& t = eightbit::kTable.of;
    CHECK(t[0] == 0.0f);
    CHECK(t[1] == 5.5e-7f);
    CHECK(t[64] == 0.10703125f);
    CHECK(t[127] == 1.0f);
    for (std::uint32_t c = 0; c < 128; ++c) {
      CHECK(eightbit::code_of(t[c]) == c);
      if (c) CHECK(t[c] > t[c - 1]);
    }
    for (const auto& [power, code] :
         {std::pair{1e-1, 64u}, {1e-2, 32u}, {1e-3, 16u}, {1e-4, 8u}, {1e-5, 4u}, {1e-6, 2u}, {1e-7, 1u}}) {
      CHECK(eightbit::code_of(static_cast<float>(power * 1.00001)) == code);
      CHECK(eightbit::code_of(static_cast<float>(power * 0.99999)) == code - 1);
    }
    CHECK(eightbit::code_of(1.0001f) == 127);
    std::uint32_t last = 0, steps = 0;
    for (float x = 1e-9f; x < 1.1f; x *= 1.0001f) {
      const std::uint32_t c = eightbit::code_of(x);
      CHECK_FALSE(c < last);
      steps += c != last;
      last = c;
    }
    CHECK(steps == 127);
  }

  // A cell's middle, 10^(k-7) + (f + 1/2) 0.9 10^(k-6) / 2^k, as a fraction whose parts are exact in float64.
  TEST_CASE("every code has its value's bits at every place of a vector and behind it, decoded and in the residual") {
    const auto value = [](int code, float scale) {
      const int c = code % 128, k = c ? std::ilogb(c) : 0;
      const double numerator = std::pow(10, k) * ((2 << k) + 18 * (c - (1 << k)) + 9);
      const double t = c == 0 ? 0.0 : c == 127 ? 1.0 : numerator / ((2 << k) * 1e7);
      return (code < 128 ? 1.0f : -1.0f) * (static_cast<float>(t) * scale);
    };
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const float scale : {1.0f, 0.7f, 0x1.fffffep99f, 0x1p-126f, 0.0f})
        for (int first = 0; first < 256; ++first) {
          Bytes codes(64 + 32 + 7);
          std::vector<float> acc(codes.size(), -0.0f), values(codes.size());
          for (std::size_t i = 0; i < codes.size(); ++i) {
            codes[i] = static_cast<std::uint8_t>(first + 37 * static_cast<int>(i));
            values[i] = value(codes[i], scale);
          }
          CHECK(decodes(scale, codes, acc));
          CHECK(difference(acc, values) == "");
          if (scale < 0.5f) continue;  // subnormal values have other codes
          values.push_back(scale);
          codes.push_back(127);
          std::vector<float> residual(values.size(), 1.0f);
          CHECK(encode(values, residual.data()) == std::pair{scale, codes});
          CHECK(difference(residual, std::vector<float>(values.size())) == "");
        }
    });
  }

  TEST_CASE("the largest magnitude and constant pieces come back exactly, small values keep their sign") {
    // GRACE's version loses the sign of its smallest bin and never returns the maximum.
    for (const float x : {0.37f, -0.37f, 0x1p100f, -0x1p-126f, 1e-20f})
      for (const std::size_t count : {1, 33, 10240}) {
        const std::vector<float> same(count, x);
        std::vector<float> residual(count, 1.0f), d(count);
        const auto [scale, codes] = encode(same, residual.data());
        CHECK(decodes(scale, codes, d));
        CHECK(difference(d, same) == "");
        CHECK(difference(residual, std::vector<float>(count)) == "");
      }
    const auto [scale, codes] = encode({1.0f, -3e-7f});
    std::vector<float> d(2);
    CHECK(decodes(scale, codes, d));
    CHECK(d[1] == -5.5e-7f);
  }

  TEST_CASE("zero and subnormal pieces are zeros and stay in the residual") {
    for (const float x : {0.0f, 0x1p-127f, -0x1p-149f}) {
      const std::vector<float> a(70, x);
      std::vector<float> residual(70, 1.0f), d(70);
      const auto [scale, codes] = encode(a, residual.data());
      CHECK(scale == 0.0f);
      CHECK(decodes(scale, codes, d));
      CHECK(difference(d, std::vector<float>(70)) == "");
      CHECK(difference(residual, a) == "");
    }
  }

  TEST_CASE("normal values are off by less than two percent of themselves and hardly more in their mean") {
    const auto a = make_data(Data::normal, 8, 10240);
    std::vector<float> residual(a.size());
    encode(a, residual.data());
    double wrong = 0, right = 0, bias = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      wrong += static_cast<double>(residual[i]) * static_cast<double>(residual[i]);
      right += static_cast<double>(a[i]) * static_cast<double>(a[i]);
      bias += static_cast<double>(residual[i]);
    }
    CHECK(std::sqrt(wrong / right) < 0.02);
    CHECK(std::fabs(bias) / 10240 < 1e-3);
  }

  // Its middle would be 1 - 0.9 / 128.
  TEST_CASE("values of the uppermost cell become the largest one, 0.7 percent of it too large on average") {
    std::vector<float> a(1000), residual(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = 2.0f - 2.0f * 0.014f * static_cast<float>(i) / 999.0f;
    encode(a, residual.data());
    double bias = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i] - residual[i] == 2.0f);
      bias += static_cast<double>(residual[i]) / 2 / 1000;
    }
    CHECK(bias == doctest::Approx(-0.007).epsilon(0.01));
  }

  TEST_CASE("illegal scales are refused") {
    std::vector<float> acc(3);
    for (const float bad : {-1.0f, -0x1p-149f, HUGE_VALF, -HUGE_VALF, std::nanf("")})
      CHECK_FALSE(decodes(bad, {1, 2, 3}, acc));
    CHECK(difference(acc, std::vector<float>(3)) == "");
    CHECK(decodes(1.0f, {127, 255, 128}, acc));
    CHECK(difference(acc, {1.0f, -1.0f, 0.0f}) == "");
  }
}
