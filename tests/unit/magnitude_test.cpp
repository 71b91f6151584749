// How small and how large values may be: between the least and the largest magnitude that its traits name, every codec
// is as good as near 1.
#include <doctest/doctest.h>

#include <cmath>

#include "codec/payload.hpp"
#include "memory/workers.hpp"
#include "support/data.hpp"
#include "support/piece.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("magnitude") {
  namespace {

  std::vector<float> sent_through(const Codec& codec, const std::vector<float>& a) {
    Workers workers(1);
    ChunkPartition partition;
    partition.add_group(a.size());
    std::vector<std::uint8_t> body(partition.body_bound(codec));
    const RandomCounter counter{0, 3, 1};
    body.resize(encode_body(codec, partition, a.data(), {}, counter, body.data(), nullptr, workers));
    BodyView view;
    REQUIRE(view.open(codec, partition, body) == "");
    std::vector<float> d(a.size());
    REQUIRE(decode_add(codec, partition, {&view, 1}, counter, d.data(), false, workers) == -1);
    return d;
  }

  double largest(const std::vector<float>& a) {
    double most = 0;
    for (const float x : a) most = std::max(most, std::fabs(static_cast<double>(x)));
    return most;
  }

  // |a - d| / |a|, of the elements [begin, end).
  double error(const std::vector<float>& a, const std::vector<float>& d, std::size_t begin, std::size_t end) {
    double lost = 0, all = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double x = static_cast<double>(a[i]), rest = x - static_cast<double>(d[i]);
      lost += rest * rest;
      all += x * x;
    }
    return all > 0 ? std::sqrt(lost / all) : std::sqrt(lost);
  }
  double error(const std::vector<float>& a, const std::vector<float>& d) { return error(a, d, 0, a.size()); }

  std::vector<float> times(const std::vector<float>& a, int exponent) {
    std::vector<float> scaled(a);
    for (float& x : scaled) x = std::ldexp(x, exponent);
    return scaled;
  }

  // Codecs whose parameter is a magnitude; below it they send nothing, by definition, and the memory keeps all.
  double absolute_bound(const Codec& codec) {
    const std::string name = codec.traits().name;
    if (name == "inceptionn") return std::exp2(std::stod(parameter(codec.spec(), "log2_bound")));
    if (name == "threshold") return std::stod(parameter(codec.spec(), "v"));
    return 0;
  }

  }  // namespace

  TEST_CASE("the relative error is the same at every magnitude that is compressed") {
    const auto normal = make_data(Data::normal, 31, 11000);
    for (const auto& codec : all_codecs()) {
      CAPTURE(codec->spec());
      const auto& traits = codec->traits();
      const double bound = absolute_bound(*codec), usual = error(normal, sent_through(*codec, normal));
      int tried = 0;
      for (int exponent = -149; exponent <= 127; exponent += kSanitized ? 12 : 1) {
        const auto a = times(normal, exponent);
        const double most = largest(a);
        if (most == 0 || most < static_cast<double>(traits.min_magnitude) ||
            !(most <= static_cast<double>(traits.max_magnitude)))
          continue;
        CAPTURE(exponent);
        ++tried;
        const auto d = sent_through(*codec, a);
        if (traits.votes) {
          for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(std::fabs(d[i]) == (a[i] == 0 ? 0.0f : 1.0f));
        } else if (bound > 0) {
          for (std::size_t i = 0; i < a.size(); ++i)
            REQUIRE(std::fabs(static_cast<double>(a[i]) - static_cast<double>(d[i])) <= bound);
        } else {
          CHECK(error(a, d) <= 1.1 * usual);
        }
      }
      CHECK(tried >= (kSanitized ? 5 : 70));
    }
  }

  TEST_CASE("zeros are zeros, and no limit speaks of them") {
    for (const auto& codec : all_codecs()) {
      CAPTURE(codec->spec());
      if (codec->traits().votes) continue;
      CHECK(largest(sent_through(*codec, std::vector<float>(3000))) == 0);
      CHECK(codec->traits().min_magnitude < codec->traits().max_magnitude);
    }
  }

  // What calls of unknown tensors get must be right whatever lies side by side in them: half of 1 % for each of the two
  // roundings of two_shot.
  TEST_CASE("fp16 and bf16 lose less than half a percent of mixtures of all magnitudes") {
    for (const char* spec : {"fp16", "bf16"}) {
      const auto codec = make_codec(spec);
      CAPTURE(spec);
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        auto a = make_data(Data::normal, seed, 30000);
        const auto random = make_data(Data::laplace, seed + 1, a.size());
        int exponent = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
          // Runs of one magnitude, of 1 to 4096 elements.
          if (i % (std::size_t{1} << seed % 13) == 0)
            exponent = static_cast<int>(std::fmod(std::fabs(random[i]) * 1e4f, 240.0f)) - 145;
          a[i] = std::ldexp(a[i], exponent);
        }
        if (largest(a) < static_cast<double>(codec->traits().min_magnitude)) continue;
        CHECK(error(a, sent_through(*codec, a)) < 0.005);
      }
    }
  }

  TEST_CASE("fp16 loses no more of a block than binary16 loses of normal numbers, down to the least float") {
    const auto codec = make_codec("fp16");
    const auto normal = make_data(Data::normal, 5, 10240 + 700);
    for (int exponent = -149; exponent <= 97; ++exponent) {
      CAPTURE(exponent);
      // The blocks' magnitudes differ by 2^20.
      auto a = times(normal, exponent);
      for (std::size_t i = 1280; i < a.size(); ++i)
        a[i] = std::ldexp(a[i], std::max(-149 - exponent, -20 * static_cast<int>(i / 1280 % 8)));
      const auto d = sent_through(*codec, a);
      for (std::size_t b = 0; b < a.size(); b += 1280) CHECK(error(a, d, b, std::min(a.size(), b + 1280)) <= 0x1p-11);
    }
  }
}
