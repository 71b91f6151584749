// What codec/codec.hpp and codec/payload.hpp promise, for every codec of this build: each must be known to the model
// and then gives its bytes.
#include <doctest/doctest.h>

#include <cmath>

#include "codec/codec.hpp"
#include "codec/payload.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/model.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("codec_contract") {
  namespace {

  struct Case {
    const Codec& codec;
    std::vector<float> values, memory;  // memory: the residual before
    ChunkPartition partition;
    std::vector<std::size_t> groups;
  };

  constexpr RandomCounter kCounter{3 * kPieceElements, 5, 2};

  Case make_case(const Codec& codec, Data data, std::size_t count, std::uint64_t seed) {
    Case c{codec, make_data(data, seed, count), make_data(data, seed + 1, count), {}, {}};
    const float limit = codec.traits().max_magnitude / 4;
    for (std::size_t i = 0; i < count; ++i) {
      c.values[i] = std::fmin(std::fmax(c.values[i], -limit), limit);
      c.memory[i] = std::fmin(std::fmax(c.memory[i] * 0.25f, -limit), limit);
    }
    for (std::size_t at = 0; at < count;) {
      const std::size_t n = std::min<std::size_t>(at == 0 && count > 20000 ? 10321 : 40960, count - at);
      c.partition.add_group(n);
      c.groups.push_back(n);
      at += n;
    }
    return c;
  }

  std::vector<float> sums(const Case& c, bool with_memory) {
    auto a = c.values;
    if (with_memory)
      for (std::size_t i = 0; i < a.size(); ++i) a[i] += c.memory[i];
    return a;
  }

  ModelBody model_body(const Case& c, const std::vector<float>& a) {
    return ModelCodec(c.codec.spec()).encode(a, c.groups, kCounter);
  }

  std::vector<FeedbackView> feedback(const Case& c, const float* in, float* out) {
    std::vector<FeedbackView> all;
    for (const auto& g : c.partition.groups())
      all.push_back({in ? in + g.offset : nullptr, out ? out + g.offset : nullptr});
    return all;
  }

  // Encodes into guarded memory of exactly the bound.
  std::vector<std::uint8_t> encode(const Case& c, const float* in, float* out, int threads) {
    Workers workers(threads);
    Guarded<float> values{std::span<const float>(c.values)};
    Guarded<std::uint8_t> body(c.partition.body_bound(c.codec));
    const auto memory = feedback(c, in, out);
    const std::size_t bytes =
        encode_body(c.codec, c.partition, values.data(), memory, kCounter, body.data(), nullptr, workers);
    CHECK(bytes <= c.partition.body_bound(c.codec));
    CHECK((!c.codec.traits().fixed_size || bytes == c.partition.body_bound(c.codec)));
    CHECK(bytes % kPayloadAlign == 0);
    CHECK(body.intact());
    CHECK(difference(values.span(), std::span<const float>(c.values)) == "");
    return {body.data(), body.data() + bytes};
  }

  void check(const Codec& codec, Data data, std::size_t count) {
    const std::uint64_t seed = 1000 + count;
    CAPTURE(codec.spec());
    CAPTURE(name_of(data));
    CAPTURE(count);
    CAPTURE(seed);
    const Case c = make_case(codec, data, count, seed);
    const auto reference = make_reference(codec.spec());
    for (const bool with_memory : {false, true}) {
      CAPTURE(with_memory);
      const auto a = sums(c, with_memory);
      const ModelBody expected = model_body(c, a);
      const float* in = with_memory ? c.memory.data() : nullptr;

      const auto body = encode(c, in, nullptr, 1);
      CHECK(difference(body, expected.bytes) == "");
      Guarded<float> residual(count);
      CHECK(encode(c, in, residual.data(), 1) == body);
      CHECK(residual.intact());
      CHECK(difference(residual.span(), std::span<const float>(expected.residual)) == "");
      if (with_memory) {
        Guarded<float> both{std::span<const float>(c.memory)};
        CHECK(encode(c, both.data(), both.data(), 1) == body);
        CHECK(both.intact());
        CHECK(difference(both.span(), residual.span()) == "");
      }

      BodyView view;
      REQUIRE(view.open(codec, c.partition, body) == "");
      Guarded<float> out(count);
      Workers one(1);
      CHECK(decode_add(codec, c.partition, std::span(&view, 1), kCounter, out.data(), false, one) == -1);
      CHECK(out.intact());
      std::vector<float> from_zero(count);
      for (std::size_t i = 0; i < count; ++i) from_zero[i] = reference->finish(0.0f + expected.decoded[i], 1);
      CHECK(difference(out.span(), std::span<const float>(from_zero)) == "");
      double excess = 0;
      for (const ChunkPartition::Piece& piece : c.partition.pieces()) {
        const auto most = reference->allowed(std::span(a).subspan(piece.offset, piece.count));
        for (std::size_t i = 0; i < piece.count; ++i) {
          const std::size_t at = piece.offset + i;
          const double error = std::fabs(static_cast<double>(a[at]) - static_cast<double>(expected.decoded[at]));
          if (most[i] >= 0) excess = std::max(excess, error - most[i]);
        }
      }
      CHECK(excess <= 0);

      for (const int threads : {2, 3}) {
        Workers workers(threads);
        std::vector<float> again(count);
        CHECK(encode(c, in, again.data(), threads) == body);
        CHECK(difference(std::span<const float>(again), residual.span()) == "");
        CHECK(decode_add(codec, c.partition, std::span(&view, 1), kCounter, again.data(), false, workers) == -1);
        CHECK(difference(std::span<const float>(again), out.span()) == "");
      }
    }
  }

  }  // namespace

  TEST_CASE("bytes, residual and decoded values are those of the format for all data and small counts") {
    Turns turns(5, 7, 7);
    for (const auto& codec : all_codecs())
      for (const Data data : kAllData)
        for (const std::size_t count : {0, 1, 2, 4, 5, 6, 31, 32, 33, 159, 160, 161, 319})
          if (turns.next()) check(*codec, data, count);
  }

  TEST_CASE("likewise around pieces and blocks") {
    Turns turns(5, 5, 5);
    for (const auto& codec : all_codecs())
      for (const Data data : {Data::normal, Data::sparse, Data::alternating, Data::zeros})
        for (const std::size_t count : {10239, 10240, 10241})
          if (turns.next()) check(*codec, data, count);
    Turns larger(3, 5, 5);
    for (const auto& codec : all_codecs())
      for (const std::size_t count : {40959, 40960, 40961, 100003})
        if (larger.next()) check(*codec, count % 2 ? Data::sparse : Data::laplace, count);
  }

  TEST_CASE("bodies are added in rank order to zero or to what is there") {
    for (const auto& codec : all_codecs())
      for (const std::size_t count : {161, 10241, 43210}) {
        CAPTURE(codec->spec());
        std::vector<std::vector<std::uint8_t>> bodies;
        std::vector<float> from_zero(count), start = make_data(Data::constant, 9, count), from_start = start;
        const Case first = make_case(*codec, Data::normal, count, 50);
        for (std::uint64_t rank = 0; rank < 5; ++rank) {
          const Case c = make_case(*codec, rank % 2 ? Data::sparse : Data::normal, count, 50 + rank);
          bodies.push_back(encode(c, nullptr, nullptr, 1));
          const auto decoded = model_body(c, c.values).decoded;
          for (std::size_t i = 0; i < count; ++i) {
            from_zero[i] += decoded[i];
            from_start[i] += decoded[i];
          }
        }
        std::vector<BodyView> views(bodies.size());
        for (std::size_t r = 0; r < bodies.size(); ++r)
          REQUIRE(views[r].open(*codec, first.partition, bodies[r]) == "");
        const auto reference = make_reference(codec->spec());
        for (float& x : from_zero) x = reference->finish(x, 5);
        for (const int threads : {1, 2, 3}) {
          Workers workers(threads);
          auto out = start;
          CHECK(decode_add(*codec, first.partition, views, kCounter, out.data(), true, workers) == -1);
          CHECK(difference(out, from_start) == "");
          CHECK(decode_add(*codec, first.partition, views, kCounter, out.data(), false, workers) == -1);
          CHECK(difference(out, from_zero) == "");
        }
      }
  }
}
