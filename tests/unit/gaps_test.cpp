// Gaps: segments that are neither read nor written, through the whole collective.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "codec/payload.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/effort.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("gaps") {
  namespace {

  // Alternately a tensor and a gap of the given sizes, the last cut or prolonged to tile `count`.
  std::shared_ptr<const Layout> gappy(std::uint64_t count, const std::vector<std::uint64_t>& sizes,
                                      bool gap_first = false) {
    return changed(*named_layout(count, sizes), Layout::Source::negotiated, [&](std::vector<Segment>& segments) {
      for (std::size_t i = 0; i < segments.size(); ++i)
        if ((i % 2 == 0) == gap_first) segments[i] = {"", segments[i].offset, segments[i].count, Segment::Use::skip};
    });
  }

  // What lies in gaps: quiet and signalling NaNs and infinities, another in every element of every rank.
  float junk(std::size_t i, std::size_t rank) {
    if (i % 5 == 4) return std::numeric_limits<float>::infinity();
    return std::bit_cast<float>(
        static_cast<std::uint32_t>((i % 2 ? 0x7fc00000u : 0xff800001u) + (i * 7 + rank) % 1000));
  }

  // The tensors alone, chunk borders where the gaps leave them: one call per chunk, so that the model need not know
  // gaps.
  struct Dense {
    std::vector<float> sum;
    std::vector<std::vector<float>> residuals;
  };

  Dense model_of(const Setup& setup, const std::vector<Rank>& ranks) {
    const ModelCodec codec(setup.codec->spec());
    Dense dense;
    dense.sum.assign(setup.count, 0.0f);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Rank& rank = ranks[r];
      std::vector<float> residual = rank.residual;
      for (const auto& s : setup.layout->segments) {
        if (s.use == Segment::Use::skip) continue;
        const auto from = static_cast<std::ptrdiff_t>(s.offset), to = static_cast<std::ptrdiff_t>(s.offset + s.count);
        std::vector<float> a(rank.values.begin() + from, rank.values.begin() + to);
        if (!residual.empty())
          for (std::size_t i = 0; i < a.size(); ++i) a[i] += residual[s.offset + i];
        for (std::uint64_t at = s.offset; at < s.offset + s.count;) {
          const std::uint64_t end = std::min(s.offset + s.count, at / setup.chunk * setup.chunk + setup.chunk);
          const std::span<const float> part(a.data() + (at - s.offset), end - at);
          const std::size_t size = part.size();
          const ModelBody body = codec.encode(part, {&size, 1}, {at, rank.sequence, static_cast<std::uint32_t>(r)});
          for (std::size_t i = 0; i < part.size(); ++i) {
            dense.sum[at + i] += body.decoded[i];
            if (!residual.empty()) residual[at + i] = body.residual[i];
          }
          at = end;
        }
      }
      dense.residuals.push_back(residual);
    }
    for (float& x : dense.sum) x = codec.reference().finish(x, static_cast<int>(ranks.size()));
    return dense;
  }

  void check(Setup setup, int n, std::uint64_t seed) {
    CAPTURE(text_of(setup));
    CAPTURE(n);
    auto ranks = make_ranks(setup, n, seed);
    std::vector<bool> gap(setup.count);
    for (const auto& s : setup.layout->segments)
      if (s.use == Segment::Use::skip)
        for (std::uint64_t i = 0; i < s.count; ++i) gap[s.offset + i] = true;
    for (std::size_t r = 0; r < ranks.size(); ++r)
      for (std::size_t i = 0; i < setup.count; ++i) {
        if (!gap[i]) continue;
        ranks[r].values[i] = junk(i, r);
        if (setup.feedback) ranks[r].residual[i] = junk(i + 1, r);
      }
    for (std::uint32_t step = 0; step < 2; ++step) {
      CAPTURE(step);
      std::vector<std::vector<float>> expected(ranks.size());
      for (Rank& rank : ranks) rank.sequence = step;
      const Dense dense = model_of(setup, ranks);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        expected[r] = dense.sum;
        for (std::size_t i = 0; i < setup.count; ++i)
          if (gap[i]) {
            ranks[r].out[i] = junk(i + 2, r);
            expected[r][i] = setup.in_place ? ranks[r].values[i] : ranks[r].out[i];
          }
      }
      run_all(setup, ranks);
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CAPTURE(r);
        CHECK_FALSE(ranks[r].result.error.has_value());
        CHECK(ranks[r].result.flags == 0);
        CHECK(difference(ranks[r].out, expected[r]) == "");
        CHECK(difference(ranks[r].residual, dense.residuals[r]) == "");
      }
    }
  }

  void check_all(Setup setup, std::uint64_t seed) {
    static Turns turns(3, 3, 11);
    for (const int n : {2, 3})
      for (const bool in_place : {false, true}) {
        setup.in_place = in_place;
        if (turns.next()) check(setup, n, seed);
        ++seed;
      }
  }

  Setup setup_of(std::shared_ptr<const Codec> codec, std::uint64_t count, std::shared_ptr<const Layout> layout) {
    Setup setup{std::move(codec), std::move(layout), count};
    setup.feedback = setup.codec->feedback().kept();
    return setup;
  }

  }  // namespace

  TEST_CASE("every codec with pads of a few elements") {
    const std::uint64_t count = 60003;
    for (const auto& codec : all_codecs())
      check_all(setup_of(codec, count, gappy(count, {5001, 3, 20000, 1, 7, 1, 16383, 2})), 1);
  }

  TEST_CASE("gaps at, across and around chunk borders") {
    for (const char* spec : {"3lc", "fp16"}) {
      const auto codec = make_codec(spec);
      const std::uint64_t chunk = 40960, count = 3 * chunk + 100;
      for (const auto& sizes : std::vector<std::vector<std::uint64_t>>{{chunk - 1, 1, 5000, 8},
                                                                       {chunk, 1, 5000, 8},
                                                                       {chunk - 1, 2, 5000, 8},
                                                                       {chunk - 5, 10, chunk - 5, 10},
                                                                       {1000, 2 * chunk, 500, 3}})
        check_all(setup_of(codec, count, gappy(count, sizes)), 10);
    }
  }

  TEST_CASE("a tensor of several chunks after a gap, and a whole chunk may be a gap") {
    const std::uint64_t chunk = 40960, count = 4 * chunk;
    for (const char* spec : {"3lc:s=1.5", "3lc:zero_run=0", "fp32"}) {
      const auto codec = make_codec(spec);
      check_all(setup_of(codec, count, gappy(count, {3, 3 * chunk}, true)), 20);
      check_all(setup_of(codec, count, gappy(count, {chunk, chunk, chunk, chunk})), 21);
      check_all(setup_of(codec, count, gappy(count, {chunk, chunk, chunk, chunk}, true)), 22);
    }
  }

  TEST_CASE("nothing but a gap") {
    for (const auto& codec : all_codecs())
      for (const std::uint64_t count : {1, 50000}) check_all(setup_of(codec, count, gappy(count, {count}, true)), 30);
  }

  TEST_CASE("gaps on workers") {
    const std::uint64_t count = 100001;
    Setup setup = setup_of(make_codec("3lc"), count, gappy(count, {30000, 11, 7, 5}));
    check_all(setup, 40);
    setup.threads = 2;
    setup.layout = gappy(count, {3, 1});
    check_all(setup, 41);
  }

  TEST_CASE("a layout with a gap is another layout") {
    const auto layout = named_layout(10, {4, 6});
    const auto gap = changed(*layout, layout->source, [](auto& segments) { segments[1].use = Segment::Use::skip; });
    CHECK(layout->digest() != gap->digest());
    ChunkPartition partition;
    partition.add_gap(5);
    partition.add_group(10);
    partition.add_gap(2);
    partition.add_group(3);
    CHECK(partition.count() == 20);
    REQUIRE(partition.groups().size() == 2);
    CHECK(partition.groups()[0].offset == 5);
    CHECK(partition.groups()[1].offset == 17);
    CHECK(partition.pieces()[1].offset == 17);
  }
}
