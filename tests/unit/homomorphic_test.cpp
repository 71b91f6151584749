// Integer sums of THC's indices against a model without shards, pipeline or SIMD: sums and residuals bit for bit, on
// every rank and with both algorithms; and what happens where bytes are corrupt or ranks disagree.
#include "codec/homomorphic.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <tuple>

#include "codec/thc/thc.hpp"
#include "collective/algorithms.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/reference.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("homomorphic") {
  namespace {

  constexpr Algorithm kBoth[] = {Algorithm::homomorphic, Algorithm::integer_sum};

  Setup setup_of(const std::string& spec, std::uint64_t count, Algorithm algorithm,
                 const std::vector<std::uint64_t>& sizes = {50000, 17, 1000}) {
    Setup setup{make_codec(spec), named_layout(count, sizes), count};
    setup.feedback = setup.codec->feedback().kept();
    setup.algorithm = algorithm;
    return setup;
  }

  std::vector<float> decoded(const thc::Tables& t, const std::vector<int>& values, float norm,
                             const RandomCounter& counter, std::uint32_t block) {
    std::vector<float> h(values.begin(), values.end());
    for (std::size_t stride = 1; stride < h.size(); stride *= 2)
      for (std::size_t i = 0; i < h.size(); ++i)
        if ((i & stride) == 0) {
          const float a = h[i], b = h[i + stride];
          h[i] = a + b;
          h[i + stride] = a - b;
        }
    const float unit = norm * t.unit / static_cast<float>(h.size());
    for (std::uint32_t i = 0; i < h.size(); ++i) {
      const float x = h[i] * unit;
      h[i] = norm == 0 ? 0.0f : thc::sign_word(counter, block, i) >> thc::sign_bit(block, i) & 1 ? -x : x;
    }
    return h;
  }

  // What every rank must have then; the ranks' residuals become the new ones.
  std::vector<float> model(const Setup& setup, std::vector<Rank>& ranks, int* largest_sum = nullptr) {
    const std::string spec = setup.codec->spec();
    const auto number = [&](const char* key) { return static_cast<std::uint32_t>(std::stoul(parameter(spec, key))); };
    const auto t = thc::make_tables(number("bits"), number("g"), number("clip"));
    const int g = static_cast<int>(t.granularity), n = static_cast<int>(ranks.size());
    const auto centred = [&](int sum, int of) { return g % 2 ? 2 * sum - of * g : sum - of * (g / 2); };
    std::vector<float> out(setup.count, 12345.0f);
    for (std::uint64_t chunk = 0; chunk < setup.count; chunk += setup.chunk)
      for (const auto& segment : setup.layout->segments) {
        const std::uint64_t from = std::max(chunk, segment.offset),
                            to = std::min({chunk + setup.chunk, setup.count, segment.offset + segment.count});
        if (segment.use == Segment::Use::skip) continue;
        for (std::uint64_t at = from; at < to; at += kPieceElements) {
          const std::uint64_t count = std::min(kPieceElements, to - at);
          std::vector<std::vector<float>> a, y, norms;
          for (std::uint32_t r = 0; r < ranks.size(); ++r) {
            a.emplace_back(ranks[r].values.begin() + static_cast<std::ptrdiff_t>(at),
                           ranks[r].values.begin() + static_cast<std::ptrdiff_t>(at + count));
            for (std::size_t i = 0; i < count && !ranks[r].residual.empty(); ++i) a[r][i] += ranks[r].residual[at + i];
            y.emplace_back(thc::coordinates(count));
            norms.emplace_back(thc::blocks(count));
            thc::rotate(a[r].data(), nullptr, count, {at, ranks[0].sequence, r}, y[r].data(), norms[r].data());
          }
          for (std::uint32_t b = 0; b < thc::blocks(count); ++b) {
            const std::uint32_t m = static_cast<std::uint32_t>(
                                    std::min<std::uint64_t>(thc::kBlock, count - b * thc::kBlock)),
                                d = thc::dimension(m);
            float norm = 0;
            for (const auto& of : norms) norm = std::max(norm, of[b]);
            std::vector<int> sums(d);
            for (std::uint32_t r = 0; r < ranks.size(); ++r) {
              const RandomCounter counter{at, ranks[0].sequence, r};
              std::vector<int> own(d);
              for (std::uint32_t i = 0; i < d && norm > 0; ++i) {
                own[i] = t.value[thc::quantize(t, y[r][b * thc::kBlock + i], t.to_grid / norm,
                                               dither::bits16(counter, dither::kRounding, b * thc::kBlock + i))];
                sums[i] += own[i];
                if (largest_sum) *largest_sum = std::max(*largest_sum, sums[i]);
              }
              for (int& v : own) v = centred(v, 1);
              const auto mine = decoded(t, own, norm, counter, b);
              for (std::uint32_t i = 0; i < m && !ranks[r].residual.empty(); ++i)
                ranks[r].residual[at + b * thc::kBlock + i] = a[r][b * thc::kBlock + i] - mine[i];
            }
            for (int& v : sums) v = centred(v, n);
            const auto result = decoded(t, sums, norm, {at, ranks[0].sequence, 0}, b);
            std::copy(result.begin(), result.begin() + m,
                      out.begin() + static_cast<std::ptrdiff_t>(at + b * thc::kBlock));
          }
        }
      }
    return out;
  }

  // Two calls, so that the second one starts from residuals.
  void check(const Setup& setup, int n, std::uint64_t seed) {
    CAPTURE(text_of(setup));
    CAPTURE(entry_of(setup.algorithm).name);
    CAPTURE(n);
    auto ranks = make_ranks(setup, n, seed);
    auto expecting = ranks;
    for (std::uint32_t step = 0; step < 2; ++step) {
      for (auto* all : {&ranks, &expecting})
        for (auto& r : *all) r.sequence = step;
      run_all(setup, ranks);
      const auto expected = model(setup, expecting);
      const int per_chunk = setup.algorithm == Algorithm::homomorphic ? 4 : 3;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        CAPTURE(r);
        CAPTURE(step);
        CHECK(ranks[r].result.flags == 0);
        CHECK_FALSE(ranks[r].result.error.has_value());
        std::vector<float> out = ranks[r].out;
        for (const auto& s : setup.layout->segments)  // in place a gap keeps the rank's values
          if (s.use == Segment::Use::skip && setup.in_place)
            std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(s.offset), s.count, 12345.0f);
        CHECK(difference(out, expected) == "");
        CHECK(difference(ranks[r].residual, expecting[r].residual) == "");
        CHECK(ranks[r].exchanges ==
              static_cast<int>(per_chunk * std::max<std::uint64_t>(1, div_up(setup.count, setup.chunk))));
      }
    }
  }

  struct Tampering {
    int receiver, exchange, from;
    std::size_t at;
  };
  std::vector<Rank> tampered(const Setup& setup, int n, const Tampering& where) {
    auto ranks = make_ranks(setup, n, 1);
    RunOptions options;
    options.tamper = [&](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == where.receiver && exchange == where.exchange && from == where.from && where.at < bytes.size())
        bytes[where.at] ^= 0x80;
    };
    run_all(setup, ranks, options);
    return ranks;
  }

  }  // namespace

  TEST_CASE("sums and residuals are the model's on every rank, with both algorithms") {
    Turns turns(1, 1, 3);
    for (const Algorithm algorithm : kBoth)
      for (const int n : {1, 2, 3, 8})
        for (const std::uint64_t count : {1, 1500, 40960, 100003})
          if (turns.next()) check(setup_of("thc", count, algorithm), n, 7);
  }

  TEST_CASE("likewise with other tables and widths of indices, without a memory, in place, in threads, with gaps") {
    Turns turns(1, 1, 3);
    for (const Algorithm algorithm : kBoth) {
      for (const char* spec : {"thc:g=17", "thc:g=15", "thc:bits=3,g=16", "thc:bits=2,g=3", "thc:g=62,memory=none"})
        if (turns.next()) check(setup_of(spec, 50001, algorithm), 3, 8);
      Setup setup = setup_of("thc", 100003, algorithm);
      setup.in_place = true;
      check(setup, 3, 9);
      setup.threads = 3;
      check(setup, 2, 9);
      setup.checksum = false;
      setup.layout =
          changed(*setup.layout, setup.layout->source, [](auto& segments) { segments[1].use = Segment::Use::skip; });
      check(setup, 3, 10);
    }
  }

  TEST_CASE("likewise on every SIMD target") {
    for_each_target([&](const std::string& target) {
      CAPTURE(target);
      for (const char* spec : {"thc", "thc:g=17", "thc:bits=3,g=62"})
        check(setup_of(spec, 12000, Algorithm::homomorphic), 2, 11);
    });
  }

  TEST_CASE("excluded defect: sums beyond a byte that carry into the neighbour") {
    // 8 ranks of g = 30 fit a byte (240), 9 do not (270), 17 of g = 15 do (255).
    for (const auto& one : {std::tuple{"thc:clip=4", 8, 30},
                            {"thc:clip=4", 9, 30},
                            {"thc:g=15,clip=4", 17, 15},
                            {"thc:g=17,clip=4", 16, 17},
                            {"thc:g=62,clip=4", 20, 62}})
      for (const Algorithm algorithm : kBoth) {
        const char* const spec = std::get<0>(one);
        const int n = std::get<1>(one), g = std::get<2>(one);
        Setup setup = setup_of(spec, 3000, algorithm);
        setup.feedback = false;
        auto ranks = make_ranks(setup, n, 3);
        for (auto& r : ranks) r.values = ranks[0].values;
        for (auto& r : ranks)
          r.values[5] = r.values[6] = 1e6f;  // coordinates are zero or beyond the limit: all ranks send g
        auto expecting = ranks;
        int largest = 0;
        const auto expected = model(setup, expecting, &largest);
        run_all(setup, ranks);
        CAPTURE(std::string(spec));
        CAPTURE(n);
        CHECK(largest == n * g);
        for (const auto& r : ranks) CHECK(difference(r.out, expected) == "");
      }
  }

  TEST_CASE("the limit of ranks is that of 16 bits") {
    for (const Algorithm algorithm : kBoth) {
      const auto why_unsupported = [&](const char* spec, int ranks) {
        return entry_of(algorithm).why_unsupported(*make_codec(spec), ranks);
      };
      CHECK(why_unsupported("thc", 2184) == "");
      CHECK(why_unsupported("thc", 2185) == "its sums have 16 bits: at most 2184 ranks with g=30");
      CHECK(why_unsupported("thc:g=15", 4369) == "");
      CHECK(why_unsupported("3lc", 2).find("thc") != std::string::npos);
      CHECK(why_unsupported("thc:decay=0.5", 2).find("decay=1") != std::string::npos);
    }
  }

  TEST_CASE("errors of the ranks average out: their rounding differs, and only the clipped share remains") {
    Setup setup = setup_of("thc", 65536, Algorithm::homomorphic, {65536});
    setup.feedback = false;
    auto ranks = make_ranks(setup, 8, 4);
    for (auto& r : ranks) r.values = make_data(Data::normal, 77, setup.count);
    run_all(setup, ranks);
    double wrong = 0, right = 0;
    for (std::size_t i = 0; i < setup.count; ++i) {
      wrong += std::pow(static_cast<double>(ranks[3].out[i]) / 8 - static_cast<double>(ranks[0].values[i]), 2);
      right += std::pow(static_cast<double>(ranks[0].values[i]), 2);
    }
    CHECK(wrong / right == doctest::Approx(.01307 / 8 + .00727).epsilon(0.04));
  }

  TEST_CASE("error feedback against the shared norm: a rank with small gradients beside a large one loses nothing") {
    Setup setup = setup_of("thc", 2048, Algorithm::homomorphic, {2048});
    auto ranks = make_ranks(setup, 2, 5);
    ranks[0].values = make_data(Data::normal, 1, setup.count);
    ranks[1].values = make_data(Data::constant, 2, setup.count);
    for (float& x : ranks[1].values) x *= 1e-2f;
    std::vector<double> sum(setup.count);
    constexpr std::uint32_t kSteps = 300;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      for (auto& r : ranks) r.sequence = step;
      run_all(setup, ranks);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(ranks[0].out[i]) / kSteps;
    }
    double wrong = 0, right = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      wrong += std::pow(sum[i] - static_cast<double>(ranks[0].values[i] + ranks[1].values[i]), 2);
      right += std::pow(static_cast<double>(ranks[1].values[i]), 2);
    }
    CHECK(wrong / right < 0.05);
  }

  TEST_CASE("blocks that are zero on all ranks are zero") {
    for (const Algorithm algorithm : kBoth) {
      Setup setup = setup_of("thc", 30000, algorithm, {30000});
      auto ranks = make_ranks(setup, 3, 6);
      for (auto& r : ranks) std::fill(r.values.begin() + 2048, r.values.begin() + 9216, 0.0f);
      run_all(setup, ranks);
      for (const auto& r : ranks)
        CHECK(difference(std::span(r.out).subspan(2048, 7168), std::span<const float>(std::vector<float>(7168))) == "");
    }
  }

  TEST_CASE("flags of one rank send all ranks through MPI after one exchange and nothing has changed") {
    for (const Algorithm algorithm : kBoth)
      for (const std::uint8_t flags : {kFlagExact, kFlagNoMemory}) {
        const Setup setup = setup_of("thc", 100003, algorithm);
        auto ranks = make_ranks(setup, 3, 1);
        ranks[1].flags = flags;
        ranks[1].no_memory = flags == kFlagNoMemory;
        const auto before = ranks;
        run_all(setup, ranks);
        for (std::size_t r = 0; r < 3; ++r) {
          CHECK(ranks[r].result.flags == flags);
          CHECK(ranks[r].exchanges == 1);
          CHECK(difference(ranks[r].residual, before[r].residual) == "");
          CHECK(difference(ranks[r].out, before[r].out) == "");
        }
      }
  }

  TEST_CASE("ranks in different calls throw alike") {
    for (const Algorithm algorithm : kBoth) {
      const Setup setup = setup_of("thc", 50000, algorithm), other = setup_of("thc", 50001, algorithm);
      auto ranks = make_ranks(setup, 2, 1);
      ranks[1] = make_ranks(other, 2, 1)[1];
      int thrown = 0;
      std::mutex lock;
      run_ranks(2, [&](ThreadTransport& transport) {
        Workers workers(1);
        try {
          call(transport, transport.rank() ? other : setup, ranks[static_cast<std::size_t>(transport.rank())], workers);
        } catch (const Error& e) {
          const std::lock_guard guard(lock);
          thrown += e.code() == ErrorCode::call_differs;
        }
      });
      CHECK(thrown == 2);
    }
  }

  TEST_CASE("corrupt norms or indices are an error on all ranks, a corrupt sum on its receiver") {
    const auto errors = [](const std::vector<Rank>& ranks) {
      std::string text;
      for (const auto& r : ranks) text += r.result.error ? 'e' : '-';
      return text;
    };
    const Setup shards = setup_of("thc", 30000, Algorithm::homomorphic),
                whole = setup_of("thc", 30000, Algorithm::integer_sum);
    for (const std::size_t at : {std::size_t{0}, std::size_t{40}}) {
      CHECK(errors(tampered(shards, 3, {1, 1, 0, at})) == "eee");
      CHECK(errors(tampered(whole, 3, {1, 1, 0, at})) == "eee");
      CHECK(errors(tampered(shards, 3, {1, 2, 2, at})) == "eee");       // the header
      CHECK(errors(tampered(shards, 3, {1, 2, 2, 64 + at})) == "eee");  // the indices
      CHECK(errors(tampered(shards, 3, {1, 3, 2, at})) == "-e-");
      CHECK(errors(tampered(shards, 3, {1, 3, 2, 64 + at})) == "-e-");
    }
    const auto ranks = tampered(shards, 3, {1, 2, 2, 100});
    CHECK(std::string(ranks[1].result.error->what()).find("received from rank 2") != std::string::npos);
    CHECK(std::string(ranks[0].result.error->what()).find("received from rank 1") != std::string::npos);
    CHECK(errors(tampered(shards, 3, {1, 9, 0, 0})) == "---");
    // Without checksums an impossible norm is still found (its sign), and a sum above N g.
    Setup trusting = shards;
    trusting.checksum = false;
    CHECK(errors(tampered(trusting, 3, {1, 1, 0, 3})) == "eee");
    Setup narrow = setup_of("thc:g=17", 30000, Algorithm::homomorphic);
    narrow.checksum = false;
    auto many = make_ranks(narrow, 2, 1);  // sums up to 34 in six bits: four low ones, then two high ones
    RunOptions options;
    options.tamper = [](int receiver, int exchange, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 0 && exchange == 3 && from == 1) bytes[64 + 64] = 0xff;
    };
    run_all(narrow, many, options);
    CHECK(errors(many) == "e-");
  }
}
