// Natural compression: the facts of WIRE_FORMAT.md, section 4.7, each on its own.
#include "codec/natural/natural.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "codec/codec.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("natural") {
  namespace {

  std::vector<std::uint8_t> encode(const Codec& codec, const std::vector<float>& a, const RandomCounter& counter = {}) {
    std::vector<std::uint8_t> bytes(codec.piece_bound(a.size()));
    bytes.resize(codec.encode_piece({a.data(), nullptr, nullptr, a.size(), counter, {}}, bytes.data()));
    return bytes;
  }
  std::vector<float> decode(const Codec& codec, const std::vector<std::uint8_t>& bytes) {
    std::vector<float> out(bytes.size());
    CHECK(codec.decode_add_piece(bytes, bytes.size(), {}, out.data()));
    return out;
  }

  }  // namespace

  TEST_CASE("powers of two and zeros are sent as they are") {
    const auto codec = make_codec("natural");
    CHECK(codec->piece_bound(10240) == 10240);
    CHECK(encode(*codec, {1.0f, -0.5f, 0.0f, 4.0f}) == std::vector<std::uint8_t>{0x40, 0xbf, 0x00, 0x42});
    std::vector<float> powers{0.0f};
    for (int k = -63; k <= 62; ++k) {
      powers.push_back(std::ldexp(1.0f, k));
      powers.push_back(-std::ldexp(1.0f, k));
    }
    for (std::uint32_t step = 0; step < 50; ++step)
      CHECK(difference(decode(*codec, encode(*codec, powers, {0, step, 0})), powers) == "");
  }

  TEST_CASE("all 256 bytes are legal: e = 0 is zero, the others are signed powers of two") {
    const auto codec = make_codec("natural");
    std::vector<std::uint8_t> bytes(256);
    for (std::size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
    const auto d = decode(*codec, bytes);
    for (int i = 0; i < 256; ++i) {
      const float size = i % 128 ? std::ldexp(1.0f, i % 128 - 64) : 0.0f;
      CHECK(d[static_cast<std::size_t>(i)] == (i < 128 ? size : -size));
    }
  }

  TEST_CASE("values go to one of their two neighbours, so often that the mean is right, also below the least power") {
    const auto codec = make_codec("natural");
    std::vector<float> a{1.0f, 1.25f, -1.5f, 1.75f, 3.0f, -0.1f, 1e-6f, 12345.678f};
    for (float& x : std::vector<float>(a)) a.push_back(x * 0x1p40f);
    for (const float x : {0x1p-64f, -0x1p-65f, 0x1.8p-64f, 0x1p-63f}) a.push_back(x);
    const int steps = 20000;
    std::vector<double> sum(a.size());
    for (std::uint32_t step = 0; step < steps; ++step) {
      const auto d = decode(*codec, encode(*codec, a, {0, step, 0}));
      for (std::size_t i = 0; i < a.size(); ++i) sum[i] += static_cast<double>(d[i]);
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(a[i]);
      // Deviation of one: at most half the distance of the neighbours; five deviations of the mean.
      const double size = std::fabs(static_cast<double>(a[i])),
                   gap = std::max(std::exp2(std::floor(std::log2(size))), 0x1p-63);
      CHECK(std::fabs(sum[i] / steps - static_cast<double>(a[i])) <= 5 * gap / 2 / std::sqrt(steps));
    }
  }

  TEST_CASE("the top is held: nothing becomes Inf") {
    const auto codec = make_codec("natural");
    for (const float x : {0x1p63f, 0x1.fp63f, 0x1p64f, 0x1.fffffep127f})
      CHECK(decode(*codec, encode(*codec, {x, -x}))[1] == -0x1p63f);
    CHECK(codec->traits().max_magnitude == 0x1p62f);
  }

  TEST_CASE("rounding differs between steps and ranks") {
    const auto codec = make_codec("natural");
    const auto a = make_data(Data::normal, 4, 300);
    CHECK(encode(*codec, a, {0, 1, 0}) == encode(*codec, a, {0, 1, 0}));
    CHECK(encode(*codec, a, {0, 1, 0}) != encode(*codec, a, {0, 2, 0}));
    CHECK(encode(*codec, a, {0, 1, 0}) != encode(*codec, a, {0, 1, 1}));
  }
}
