// Every SIMD target of this machine gives the model's bits, for whole bodies of every codec.
#include <doctest/doctest.h>

#include <set>

#include "codec/payload.hpp"
#include "codec/simd.hpp"
#include "core/error.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/model.hpp"
#include "support/simd_targets.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("simd") {
  TEST_CASE("the chosen target can be set and is the best one otherwise") {
    const std::string best = simd_target();
    std::set<std::string> seen;
    const int targets = for_each_target([&](const std::string& target) {
      CHECK(simd_target() == target);
      seen.insert(target);
    });
    CHECK(targets == static_cast<int>(seen.size()));
    CHECK(seen.contains(best));
    CHECK(simd_target() == best);
    std::string all;
    for (const auto& s : seen) all += s + " ";
    MESSAGE("targets of this machine: " << all);
#if defined(__x86_64__)
    CHECK(targets >= 2);
#endif
  }

  TEST_CASE("a target of this machine can be chosen by its name, and no other") {
    const auto targets = simd_targets();
    REQUIRE(!targets.empty());
    CHECK(simd_target() == targets.front());
    std::size_t before = 0;
    for (const auto& target : targets) {
      choose_simd(target);
      CHECK(simd_target() == target);
      const std::size_t used = hwy::GetChosenTarget().GetIndex();  // by codecs, the best the lowest
      CHECK(used > before);
      before = used;
    }
    CHECK_THROWS_WITH_AS(choose_simd("MMX"), doctest::Contains(("legal: " + targets.front()).c_str()), Error);
    CHECK(simd_target() == targets.back());
    choose_simd(targets.front());
    CHECK(simd_target() == targets.front());
  }

  TEST_CASE("bodies, residuals and sums are the model's on every target") {
    Workers workers(1);
    for (const auto& codec : all_codecs())
      for (const Data data : kAllData)
        for (const std::size_t count : {1, 33, 161, 2719, 10417}) {
          CAPTURE(codec->spec());
          CAPTURE(name_of(data));
          CAPTURE(count);
          auto a = make_data(data, count, count);
          for (float& x : a)
            x = std::max(std::min(x, codec->traits().max_magnitude / 4), -codec->traits().max_magnitude / 4);
          const RandomCounter counter{40960, 3, 1};
          const ModelCodec model(codec->spec());
          const ModelBody expected = model.encode(a, std::span(&count, 1), counter);
          auto three_times = std::vector<float>(count);
          for (int r = 0; r < 3; ++r)
            for (std::size_t i = 0; i < count; ++i) three_times[i] += expected.decoded[i];
          for (float& x : three_times) x = model.reference().finish(x, 3);
          ChunkPartition partition;
          partition.add_group(count);
          for_each_target([&](const std::string& target) {
            CAPTURE(target);
            std::vector<std::uint8_t> body(partition.body_bound(*codec));
            std::vector<float> residual(count), out(count);
            const FeedbackView feedback{nullptr, residual.data()};
            body.resize(encode_body(*codec, partition, a.data(), std::span(&feedback, 1), counter, body.data(), nullptr,
                                    workers));
            CHECK(difference(body, expected.bytes) == "");
            CHECK(difference(residual, expected.residual) == "");
            std::vector<BodyView> views(3);
            for (auto& view : views) REQUIRE(view.open(*codec, partition, body) == "");
            CHECK(decode_add(*codec, partition, views, counter, out.data(), false, workers) == -1);
            CHECK(difference(out, three_times) == "");
          });
        }
  }

  TEST_CASE("all 243 bytes decode to their digits on every target") {
    const auto codec = make_codec("3lc:zero_run=0");
    // A full tile of 32 bytes per round and a tail, each byte value in every place.
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      int wrong = 0;
      for (int first = 0; first < 243; ++first) {
        std::vector<std::uint8_t> bytes(32 + 20), piece;
        for (std::size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = static_cast<std::uint8_t>((static_cast<std::size_t>(first) + i) % 243);
        std::vector<float> acc(260, 0.5f);
        piece = {0, 0, 0x40, 0x3f};  // the scale 0.75
        piece.insert(piece.end(), bytes.begin(), bytes.end());
        REQUIRE(codec->decode_add_piece(piece, 260, {}, acc.data()));
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          int rest = bytes[i];
          for (std::size_t j = 5; j-- > 0; rest /= 3) {
            const std::size_t element = i < 32 ? i + 32 * j : 160 + (i - 32) + 20 * j;
            wrong += acc[element] != 0.5f + 0.75f * static_cast<float>(rest % 3 - 1);
          }
        }
      }
      CHECK(wrong == 0);
    });
  }
}
