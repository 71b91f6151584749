// The facts of WIRE_FORMAT.md, section 4.4, each on its own.
#include "codec/threelc/threelc.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "codec/codec.hpp"
#include "codec/payload.hpp"
#include "codec/threelc/threelc_reference.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/reference.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("threelc") {
  namespace {

  // Of one piece: the scale and, apart from it, the rest.
  float scale_of(const Codec& codec, const std::vector<float>& values, const float* residual = nullptr) {
    Bytes bytes(codec.piece_bound(values.size()));
    codec.encode_piece({values.data(), residual, nullptr, values.size(), {}, {}}, bytes.data());
    float scale;
    std::memcpy(&scale, bytes.data(), sizeof scale);
    return scale;
  }

  Bytes encode(const Codec& codec, const std::vector<float>& a, float* residual = nullptr) {
    Bytes bytes(codec.piece_bound(a.size()));
    bytes.resize(codec.encode_piece({a.data(), nullptr, residual, a.size(), {}, {}}, bytes.data()));
    return {bytes.begin() + 4, bytes.end()};
  }

  bool decodes(const Codec& codec, const Bytes& bytes, float scale, std::vector<float>& out) {
    Bytes piece(sizeof scale + bytes.size());
    std::memcpy(piece.data(), &scale, sizeof scale);
    std::copy(bytes.begin(), bytes.end(), piece.begin() + sizeof scale);
    return codec.decode_add_piece(piece, out.size(), {}, out.data());
  }

  std::vector<float> decode(const Codec& codec, const Bytes& bytes, std::size_t count, float scale) {
    std::vector<float> out(count);
    CHECK(decodes(codec, bytes, scale, out));
    return out;
  }

  }  // namespace

  TEST_CASE("the example of the format") {
    const auto a = example37();
    const auto coded = make_codec("3lc"), base = make_codec("3lc:zero_run=0");
    const auto coded175 = make_codec("3lc:s=1.75"), base175 = make_codec("3lc:s=1.75,zero_run=0");
    CHECK(scale_of(*coded, a) == 1.0f);
    CHECK(scale_of(*coded175, a) == 1.75f);
    // q(0) = 1, q(3) = -1, q(12) = 1 (0.51 > 0.5), q(36) = -1; w = 8, so 12 is digit 1 of byte 4 and 36 digit 4 of
    // byte 4.
    const Bytes expected{202, 121, 121, 40, 121 + 27 - 1, 121, 121, 121};
    CHECK(encode(*base, a) == expected);
    CHECK(encode(*coded, a) == Bytes{202, 243, 40, 147, 244});
    CHECK(encode(*base175, a) == Bytes{202, 121, 121, 121, 120, 121, 121, 121});
    CHECK(encode(*coded175, a) == Bytes{202, 244, 120, 244});
  }

  TEST_CASE("digits: a full tile's byte i holds elements i and i + 32 to i + 128") {
    const auto codec = make_codec("3lc:zero_run=0");
    const int weights[] = {81, 27, 9, 3, 1};
    for (std::size_t element = 0; element < 160; ++element)
      for (const float sign : {1.0f, -1.0f}) {
        std::vector<float> a(160);
        a[element] = sign;
        Bytes expected(32, 121);
        expected[element % 32] = static_cast<std::uint8_t>(121 + static_cast<int>(sign) * weights[element / 32]);
        CHECK(encode(*codec, a) == expected);
        CHECK(difference(decode(*codec, expected, 160, 1.0f), a) == "");
      }
    CHECK(encode(*codec, std::vector<float>(160, 1.0f)) == Bytes(32, 242));
    CHECK(encode(*codec, std::vector<float>(160, -1.0f)) == Bytes(32, 0));
    CHECK(encode(*codec, std::vector<float>(5, -1.0f)) == Bytes{0});
    CHECK(encode(*codec, std::vector<float>(4, -1.0f)) == Bytes{1});  // the element beyond the tile counts as zero
  }

  TEST_CASE("a tail of m elements has stripes of ceil(m / 5)") {
    const auto codec = make_codec("3lc:zero_run=0");
    const int weights[] = {81, 27, 9, 3, 1};
    for (const std::size_t before : {0, 160, 320})
      for (std::size_t m = 1; m < 160; ++m) {
        const std::size_t count = before + m, w = (m + 4) / 5;
        REQUIRE(codec->piece_bound(count) == 4 + before / 5 + w);
        int wrong = 0;
        for (std::size_t k = 0; k < m; ++k) {
          std::vector<float> a(count);
          a[before + k] = 2.0f;
          Bytes expected(before / 5 + w, 121);
          expected[before / 5 + k % w] = static_cast<std::uint8_t>(121 + weights[k / w]);
          wrong += encode(*codec, a) != expected || decode(*codec, expected, count, 2.0f) != a;
        }
        CAPTURE(count);
        CHECK(wrong == 0);
      }
  }

  TEST_CASE("a tie is zero and its neighbours are not") {
    const auto codec = make_codec("3lc:zero_run=0");
    for (const float m : {1.0f, 0.7f, 3.0e-5f, 0x1p100f, 0x1p-126f})
      for (const std::size_t at : {0, 100, 159, 160, 164}) {  // in a full tile and in a tail
        for (const float sign : {1.0f, -1.0f}) {
          std::vector<float> a(165), residual(165);
          a[40] = m;  // sets the scale and is the first byte that is not 121
          const auto byte_count = [&](float x) {
            a[at] = sign * x;
            const Bytes bytes = encode(*codec, a, residual.data());
            return std::count_if(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b != 121; }) - 1;
          };
          CAPTURE(m);
          CAPTURE(at);
          CHECK(byte_count(m / 2) == 0);
          CHECK(residual[at] == sign * (m / 2));
          CHECK(byte_count(std::nextafter(m / 2, 0.0f)) == 0);
          CHECK(byte_count(std::nextafter(m / 2, HUGE_VALF)) == 1);
          CHECK(residual[at] == sign * (std::nextafter(m / 2, HUGE_VALF) - m));
        }
      }
  }

  TEST_CASE("scale 0 means that all values are 0 and zeros keep their sign in the residual") {
    for (const char* spec : {"3lc", "3lc:zero_run=0"}) {
      const auto codec = make_codec(spec);
      std::vector<float> a(333), residual(333, 7.0f);
      a[5] = a[330] = -0.0f;
      CHECK(scale_of(*codec, a) == 0.0f);
      CHECK_FALSE(std::signbit(scale_of(*codec, a)));
      const Bytes bytes = encode(*codec, a, residual.data());
      CHECK(difference(residual, a) == "");
      CHECK(difference(decode(*codec, bytes, a.size(), 0.0f), std::vector<float>(333)) == "");
      // A sender's bytes with digits under scale 0 add zeros too.
      Bytes digits(codec->piece_bound(333) - 4, 0);
      CHECK(difference(decode(*codec, digits, 333, 0.0f), std::vector<float>(333)) == "");
    }
  }

  TEST_CASE("the scale is s times the largest magnitude of values plus residual") {
    for (const char* text : {"1", "1.5", "1.75", "1.9999999"}) {
      const auto codec = make_codec(std::string("3lc:s=") + text);
      const float s = std::strtof(text, nullptr);
      for (const std::size_t count : {1, 3, 15, 16, 17, 31, 33, 64, 100, 257})
        for (std::size_t at = 0; at < count; ++at) {
          std::vector<float> values(count, 0.125f), residual(count, -0.0625f);
          values[at] = -1.3f;
          CHECK(scale_of(*codec, values) == s * 1.3f);
          residual[at] = -1.1f;
          CHECK(scale_of(*codec, values, residual.data()) == s * (1.3f + 1.1f));
        }
      // s < 2: the largest element always survives.
      CHECK(encode(*codec, {1.0f}) == Bytes{202});
    }
  }

  TEST_CASE("350 zeros are five bytes and density decides the size") {
    const auto codec = make_codec("3lc");
    CHECK(encode(*codec, std::vector<float>(350)) == Bytes(5, 255));
    CHECK(encode(*codec, std::vector<float>(10240)).size() == 147);  // 2048 = 146 * 14 + 4
    // Reference figures for independent elements: bits a value at a fraction of non-zeros (all of them quantise to +-1
    // here).
    const std::pair<double, double> figures[] = {{0.5, 1.60},   {0.2, 1.43},   {0.1, 1.04},   {0.05, 0.65},
                                                 {0.02, 0.337}, {0.01, 0.226}, {0.001, 0.125}};
    for (const auto& [density, bits] : figures) {
      std::size_t bytes = 0;
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        auto a = make_sparse(density, seed, 10240);
        for (float& x : a) x = x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
        bytes += encode(*codec, a).size();
      }
      CHECK(8.0 * static_cast<double>(bytes) / (20 * 10240) == doctest::Approx(bits).epsilon(0.03));
    }
  }

  TEST_CASE("random densities give the reference's bytes and come back") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const double density = std::pow(0.5, static_cast<double>(seed % 13));
      const std::size_t count = 1 + seed * 7919 % 10240;
      CAPTURE(seed);
      const auto a = make_sparse(density, seed, count);
      for (const char* spec : {"3lc:s=1.3,zero_run=1", "3lc:s=1.3,zero_run=0"}) {
        const auto codec = make_codec(spec);
        const float scale = scale_of(*codec, a);
        const auto base = threelc_base_bytes(a, scale);
        const Bytes got = encode(*codec, a);
        CHECK(difference(got, codec->parameter_word() ? threelc_run_coded(base) : base) == "");
        CHECK(difference(decode(*codec, got, count, scale), threelc_values(base, count, scale)) == "");
      }
    }
  }

  TEST_CASE("without zero runs a byte above 242 is refused wherever it stands") {
    const auto codec = make_codec("3lc:zero_run=0");
    for (const std::size_t count : {5, 160, 700, 1600}) {
      const std::size_t n = codec->piece_bound(count) - 4;
      std::vector<float> acc(count);
      for (std::size_t at = 0; at < n; ++at)
        for (const int value : {243, 255}) {
          Bytes bytes(n, 242);
          bytes[at] = static_cast<std::uint8_t>(value);
          CHECK_FALSE(decodes(*codec, bytes, 1.0f, acc));
        }
      CHECK(decodes(*codec, Bytes(n, 242), 1.0f, acc));
    }
  }

  TEST_CASE(
      "scale=tensor: the paper's one scale for all pieces of a group, which sends less where their sizes differ") {
    Workers workers(1);
    ChunkPartition partition;
    for (const std::size_t n : {30000, 11000}) partition.add_group(n);
    auto a = make_data(Data::normal, 6, 41000);
    for (std::size_t i = 10240; i < 30000; ++i) a[i] /= 100;
    const auto body_of = [&](const char* spec) {
      const auto codec = make_codec(spec);
      std::vector<std::uint8_t> body(partition.body_bound(*codec));
      body.resize(encode_body(*codec, partition, a.data(), {}, {}, body.data(), nullptr, workers));
      return body;
    };
    const auto largest = [&](std::size_t begin, std::size_t end) {
      float most = 0;
      for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(a[i]));
      return most;
    };
    const auto scales = [&](const char* spec) {  // of a fixed size: pieces follow each other
      const auto codec = make_codec(spec);
      const auto body = body_of(spec);
      std::vector<float> all;
      std::size_t at = 0;
      for (const auto& piece : partition.pieces()) {
        all.push_back(0);
        std::memcpy(&all.back(), body.data() + at, sizeof(float));
        at += codec->piece_bound(piece.count);
      }
      return all;
    };
    const float first = largest(0, 30000), second = largest(30000, 41000);
    CHECK(scales("3lc:s=1.5,zero_run=0,scale=tensor") ==
          std::vector<float>{1.5f * first, 1.5f * first, 1.5f * first, 1.5f * second, 1.5f * second});
    CHECK(scales("3lc:s=1.5,zero_run=0")[1] == 1.5f * largest(10240, 20480));
    CHECK(body_of("3lc:scale=tensor").size() < 0.7 * static_cast<double>(body_of("3lc").size()));
    CHECK(make_codec("3lc:scale=tensor")->parameter_word() ==
          make_codec("3lc")->parameter_word());  // receivers need not know
  }

  TEST_CASE("a scale that is negative or not finite is refused") {
    for (const char* spec : {"3lc", "3lc:zero_run=0"}) {
      const auto codec = make_codec(spec);
      const Bytes good = encode(*codec, example37());
      std::vector<float> out(37);
      for (const float scale : {-1.0f, -0x1p-149f, HUGE_VALF, -HUGE_VALF, std::nanf("")})
        CHECK_FALSE(decodes(*codec, good, scale, out));
      CHECK(difference(out, std::vector<float>(37)) == "");
      CHECK(decodes(*codec, good, 0.0f, out));
    }
  }
}
