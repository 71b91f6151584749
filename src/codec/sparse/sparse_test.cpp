// Top-k, threshold and their bytes: the facts of WIRE_FORMAT.md, sections 4.18 and 4.20, and the defects of other
// implementations.
#include "codec/sparse/sparse.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/index_set.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("sparse") {
  namespace {

  std::size_t sent(const std::vector<float>& d) {
    return static_cast<std::size_t>(std::count_if(d.begin(), d.end(), [](float x) { return x != 0.0f; }));
  }

  const char* const kSelecting[] = {"topk",          "topk:ratio=1",     "dgc",  "dgc:sample=0.01", "sidco",
                                    "sidco:dist=gp", "sidco:dist=gamma", "adaq", "threshold",       "threshold:v=0"};

  }  // namespace

  TEST_CASE("the example of the format") {
    const auto codec = make_codec("topk:ratio=0.1");  // 37 elements: 4
    std::vector<float> residual(37);
    CHECK(encode(*codec, example37(), residual.data()) ==
          Bytes{4, 0, 0, 0, 0x80, 0x3f, 0x9a, 0x99, 0x19, 0xbf, 0x5c, 0x8f, 0x02, 0x3f, 0, 0, 0x80, 0xbf, 0, 2, 8, 23});
    std::vector<float> rest(37);
    rest[6] = 0.49f;
    CHECK(difference(residual, rest) == "");
    // All five of them take as many gaps as the bitmap has bytes, so the bitmap is sent.
    const Bytes all = encode(*make_codec("topk:ratio=0.14"), example37());
    CHECK(all.size() == 2 + 20 + 5);
    CHECK(Bytes(all.begin(), all.begin() + 2) == Bytes{5, 0x80});
    CHECK(Bytes(all.end() - 5, all.end()) == Bytes{0x49, 0x10, 0, 0, 0x10});
  }

  TEST_CASE("k is the rounded share, at least one") {
    for (const auto& [ratio, count, k] : {std::tuple{0.01f, 1, 1},
                                          {0.01f, 49, 1},
                                          {0.01f, 149, 1},
                                          {0.01f, 151, 2},
                                          {0.01f, 1000, 10},
                                          {0.3f, 10, 3},
                                          {1.0f, 7, 7},
                                          {0.5f, 3, 2}}) {
      CHECK(share_of(ratio, static_cast<std::uint64_t>(count)) == static_cast<std::uint64_t>(k));
      const auto a = make_data(Data::laplace, 3, static_cast<std::size_t>(count));
      CHECK(sent(through(*make_codec("topk:ratio=" + std::to_string(ratio)), a)) == static_cast<std::size_t>(k));
    }
    CHECK(share_of(0.01f, std::uint64_t{1} << 32) == 42949672);
  }

  TEST_CASE("equal magnitudes: the lowest indices, whatever their signs") {
    std::vector<float> a(10240);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = i % 3 ? 1.0f : -1.0f;
    a[9000] = 2.0f;
    const auto d = through(*make_codec("topk:ratio=0.01"), a);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(d[i] == (i < 101 || i == 9000 ? a[i] : 0.0f));
  }

  TEST_CASE("gaps: every length comes back, and skips are counted") {
    for (const std::uint32_t gap : {0u, 1u, 239u, 240u, 479u, 480u, 3839u, 3840u, 4079u, 4080u, 7919u, 10237u}) {
      std::vector<float> a(10240);
      a[0] = 1.0f;
      a[gap + 1] = -2.0f;
      const Bytes bytes = encode(*make_codec("threshold:v=0.5"), a);
      const std::size_t skips = gap < 240 ? 0 : (gap / 240 + 15) / 16;
      CHECK(bytes.size() == 2 + 8 + 2 + skips);
      std::vector<float> out(a.size());
      CHECK(decodes(*make_codec("threshold"), bytes, out));
      CHECK(difference(out, a) == "");
    }
  }

  TEST_CASE("random densities: the smaller form, sizes as said, and all comes back") {
    const auto codec = make_codec("threshold:v=0");
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
      const double density = std::pow(0.5, static_cast<double>(seed % 11));
      const std::size_t count = 1 + seed * 7919 % 10240;
      CAPTURE(seed);
      const auto a = make_sparse(density, seed, count);
      const Bytes bytes = encode(*codec, a);
      CHECK(bytes.size() <= (sent(a) ? 2 + 4 * sent(a) + index_set::bitmap_bytes(count) : 0));
      std::vector<float> out(count);
      CHECK(decodes(*codec, bytes, out));
      CHECK(difference(out, a) == "");
    }
    // 8.7 bits a place at one in a hundred: 0.41 bits a value, where the field sends 0.64 (32-bit indices) or 0.96.
    const auto a = make_data(Data::normal, 1, 10240);
    CHECK(8.0 * static_cast<double>(encode(*make_codec("topk"), a).size()) / 10240 ==
          doctest::Approx(0.41).epsilon(0.02));
    CHECK(8.0 * static_cast<double>(encode(*make_codec("topk:value=f16"), a).size()) / 10240 ==
          doctest::Approx(0.25).epsilon(0.02));
  }

  TEST_CASE("neighbours: any number of one word's elements as gaps") {
    for (std::uint32_t run = 1; run <= 64; ++run)
      for (const std::uint32_t begin : {0u, 61u, 64u, 9000u}) {
        alignas(64) std::uint64_t bits[kPieceElements / 64] = {};
        std::vector<std::uint16_t> wanted, indices(run);
        for (std::uint32_t i = begin; i < begin + run; ++i)
          bits[i / 64] |= std::uint64_t{1} << i % 64, wanted.push_back(static_cast<std::uint16_t>(i));
        Bytes bytes(index_set::bitmap_bytes(kPieceElements));
        const auto coded = index_set::encode(bits, kPieceElements, run, bytes.data());
        CHECK_MESSAGE(coded.head == run, "gaps, not a bitmap");
        bytes.resize(coded.bytes);
        CHECK(index_set::decode(bytes, coded.head, kPieceElements, indices.data()));
        CHECK(indices == wanted);
      }
  }
  TEST_CASE("float32 values are exact, however small") {
    const std::vector<float> a{0x1p-149f, -0x1p-126f, 0x1.8p-120f, 0.0f, 0x1p-130f};
    for (const std::string name : {"topk:ratio=1", "threshold:v=0", "dgc:ratio=1", "sidco:ratio=1"}) {
      CAPTURE(name);
      const auto codec = make_codec(name);
      CHECK(codec->traits().min_magnitude == 0.0f);
      CHECK(make_codec(name + ",value=f16")->traits().min_magnitude == 0x1p-80f);
      CHECK(difference(through(*codec, a), a) == "");
    }
  }

  TEST_CASE("float16 values have a scale per piece; what rounding cuts off stays in the residual") {
    const auto codec = make_codec("topk:ratio=1,value=f16");
    const std::vector<float> a{1.0f + 0x1p-20f, -0x1p20f, 0x1p-30f, 65504.0f,
                               65519.0f};  // in units of 2^5 at least 2^-24 of them
    std::vector<float> residual(a.size());
    std::vector<float> d(a.size());
    CHECK(decodes(*codec, encode(*codec, a, residual.data()), d));
    CHECK(difference(d, {1.0f, -0x1p20f, 0.0f, 65504.0f, 65504.0f}) == "");
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(residual[i] == a[i] - d[i]);
    CHECK(codec->traits().max_magnitude == 0x1p100f);
    const std::vector<float> tiny{0x1p-70f, -0x1p-75f, 0x1p-71f}, back = through(*codec, tiny);
    CHECK(difference(back, tiny) == "");
    CHECK(encode(*codec, tiny)[2] == 127 - 85);  // 2^-70 is 2^15 of 2^-85
    for (const int scale : {0, 240})
      CHECK(refuses(*codec, encode(*codec, tiny), tiny.size(),
                    [&](Bytes& p) { p[2] = static_cast<std::uint8_t>(scale); }));
    CHECK(refuses(*codec, encode(*codec, tiny), tiny.size(), [&](Bytes& p) { p[3] = 1; }));
  }

  TEST_CASE("excluded: a tensor of zeros selects nothing, not all (DGC, threshold)") {
    for (const char* spec : kSelecting)
      for (const std::size_t count : {1, 64, 1000, 10240}) {
        CAPTURE(spec);
        std::vector<float> zeros(count), residual(count, 7.0f);
        zeros[count / 2] = -0.0f;
        CHECK(encode(*make_codec(spec), zeros, residual.data()).empty());
        CHECK(difference(residual, zeros) == "");
      }
  }

  TEST_CASE(
      "excluded: a tensor of negatives selects by magnitude (GRACE's threshold took the maximum, and then everything)") {
    std::vector<float> a(1000, -0.001f);
    a[5] = -0.5f;
    CHECK(sent(through(*make_codec("threshold"), a)) == 1);
    CHECK(sent(through(*make_codec("topk:ratio=0.001"), a)) == 1);
    CHECK(through(*make_codec("topk:ratio=0.001"), a)[5] == -0.5f);
  }

  TEST_CASE("excluded: hangs and failures on an empty selection (GRACE #16); a single element and k = count work") {
    for (const char* spec : kSelecting) {
      CAPTURE(spec);
      const auto codec = make_codec(spec);
      std::vector<float> out(100, 3.0f);
      CHECK(codec->decode_add_piece({}, 100, {}, out.data()));
      CHECK(difference(out, std::vector<float>(100, 3.0f)) == "");
      CHECK(through(*codec, {-0.75f})[0] == -0.75f);
    }
    const auto a = make_data(Data::normal, 2, 777);
    CHECK(difference(through(*make_codec("topk:ratio=1"), a), a) == "");
  }

  TEST_CASE("all elements equal: exactly k of them") {
    const std::vector<float> a(5000, -0.37f);
    for (const char* spec : {"topk", "dgc", "dgc:sample=0.01", "sidco", "sidco:dist=gp", "sidco:dist=gamma", "adaq"}) {
      CAPTURE(spec);
      CHECK(sent(through(*make_codec(spec), a)) == 50);
    }
  }

  TEST_CASE("a threshold is compared strictly") {
    const float v = 0.25f;
    const auto d = through(*make_codec("threshold:v=0.25"), {v, -v, std::nextafter(v, 1.0f), -std::nextafter(v, 1.0f)});
    CHECK(difference(d, {0.0f, 0.0f, std::nextafter(v, 1.0f), -std::nextafter(v, 1.0f)}) == "");
  }

  TEST_CASE(
      "excluded: a loose threshold that expands eightfold; at most a bit a value is added, 65535 bytes hold a piece") {
    const std::vector<float> a(10240, 1.0f);
    CHECK(encode(*make_codec("threshold"), a).size() == 2 + 40960 + 1280);
    CHECK(make_codec("threshold")->piece_bound(10240) == 42242);
  }

  TEST_CASE("malformed pieces are refused") {
    const auto codec = make_codec("topk:ratio=0.1");
    std::vector<float> acc(37);
    const Bytes good = encode(*codec, example37());
    const auto refused = [&](auto&& change) { return refuses(*codec, good, 37, change); };
    CHECK(decodes(*codec, good, acc));
    CHECK(refused([](Bytes& b) { b[0] = 3; }));                  // fewer elements than places
    CHECK(refused([](Bytes& b) { b[0] = 5; }));                  // more
    CHECK(refused([](Bytes& b) { b[0] = 38; }));                 // more than the piece has
    CHECK(refused([](Bytes& b) { b[0] = 0; }));                  // an empty selection has no bytes
    CHECK(refused([](Bytes& b) { b[1] = 0x40; }));               // the reserved bit
    CHECK(refused([](Bytes& b) { b[1] = 0x80; }));               // a bitmap of another length
    CHECK(refused([](Bytes& b) { b.at(21) = 24; }));             // index 37
    CHECK(refused([](Bytes& b) { b.at(21) = 240; }));            // a skip at the end
    CHECK(refused([](Bytes& b) { b[19] = 240; }));               // beyond the end by a skip
    CHECK(refused([](Bytes& b) { b.push_back(0); }));            // one more place
    CHECK(refused([](Bytes& b) { b[5] = 0x7f, b[4] = 0x80; }));  // infinity
    CHECK(refused([](Bytes& b) { b[5] = 0xff, b[4] = 0xc0; }));  // NaN
    CHECK(refused([](Bytes& b) { b.resize(1); }));
    Bytes bitmap = encode(*make_codec("topk:ratio=1"), std::vector<float>(12, 1.0f));
    std::vector<float> twelve(12);
    CHECK(decodes(*codec, bitmap, twelve));
    bitmap.back() = 0x17;  // an element beyond the piece in place of one in it
    CHECK_FALSE(decodes(*codec, bitmap, twelve));
    bitmap.back() = 0x1f;  // one more
    CHECK_FALSE(decodes(*codec, bitmap, twelve));
    bitmap.back() = 0x07;  // one less
    CHECK_FALSE(decodes(*codec, bitmap, twelve));
  }

  TEST_CASE("parameters out of range are refused with what is legal") {
    for (const char* spec : {"topk:ratio=0", "topk:ratio=1.1", "topk:ratio=-1", "topk:ratio=nan", "randomk:ratio=0",
                             "adaq:ratio=2", "sidco:ratio=0"})
      CHECK(refusal(spec).find("legal is 0 < ratio <= 1") != std::string::npos);
    CHECK(refusal("threshold:v=-1").find("legal is 0 <= v") != std::string::npos);
    CHECK(refusal("threshold:v=inf").find("legal is 0 <= v") != std::string::npos);
    CHECK(refusal("topk:value=f8").find("legal is f32 or f16") != std::string::npos);
    CHECK(refusal("dgc:sample=0").find("legal is 0 < sample <= 1") != std::string::npos);
    CHECK(refusal("sidco:stages=0").find("legal is a whole number, 1 to 8") != std::string::npos);
    CHECK(refusal("sidco:stages=1.5").find("legal is a whole number, 1 to 8") != std::string::npos);
    CHECK(refusal("sidco:dist=weibull").find("legal is exp, gp or gamma") != std::string::npos);
    CHECK(refusal("topk:keep=3").find("not a parameter of topk") != std::string::npos);
  }
}
