// PowerSGD and its algorithm: the rule for shapes, the products, exact recovery, warm start, what is conserved, what a
// corrupt exchange does.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "codec/powersgd/powersgd_extents.hpp"
#include "collective/algorithms.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "memory/workers.hpp"
#include "support/collective_run.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/effort.hpp"
#include "support/sanitized.hpp"
#include "support/simd_targets.hpp"

using namespace crimp;
using namespace crimp::test;
using powersgd::Matrix;

TEST_SUITE("low_rank") {
  namespace {

  struct Tensors {
    std::shared_ptr<const Codec> codec;
    std::vector<std::uint64_t> sizes;
    bool memory = true, checksum = true, in_place = false;
    int threads = 1;
    std::vector<std::size_t> gaps{};  // segments that are skipped
    bool named = false;               // extents are known from call to call
  };

  // One rank: its values, memories and results from step to step.
  struct Member {
    std::vector<float> values, out;
    std::vector<std::vector<float>> memories;
    std::vector<powersgd::Extents> extents;
    CollectiveResult result;
    std::uint8_t flags = 0;
  };

  class World {
   public:
    World(Tensors tensors, int ranks) : tensors_(std::move(tensors)), members_(static_cast<std::size_t>(ranks)) {
      std::vector<Segment> segments;
      for (const auto n : tensors_.sizes) {
        segments.push_back({"tensor." + std::to_string(segments.size()), count_, n});
        count_ += n;
      }
      for (const auto s : tensors_.gaps) segments[s].use = Segment::Use::skip;
      layout_ = Layout::make(Layout::Source::named, std::move(segments));
      for (Member& m : members_) {
        m.values.resize(count_);
        for (const auto n : tensors_.sizes) m.memories.emplace_back(tensors_.codec->feedback_elements(n));
        m.extents.resize(tensors_.sizes.size());
      }
    }
    std::uint64_t count() const { return count_; }
    std::vector<Member>& members() { return members_; }
    std::uint32_t step = 0;

    void run(const RunOptions& options = {}) {
      run_ranks(
          static_cast<int>(members_.size()),
          [&](ThreadTransport& transport) {
            Member& m = members_[static_cast<std::size_t>(transport.rank())];
            m.out = tensors_.in_place ? m.values : std::vector<float>(count_, 12345.0f);
            PartPlan part{tensors_.codec.get(), layout_, count_};
            part.checksum = tensors_.checksum;
            const auto route = plan_route(Algorithm::low_rank, part, kPieceElements, transport.size());
            CallBuffers c;
            c.in = tensors_.in_place ? m.out.data() : m.values.data();
            c.out = m.out.data();
            if (tensors_.memory)
              for (std::size_t s = 0; s < m.memories.size(); ++s)
                c.residuals.push_back(layout_->segments[s].use == Segment::Use::skip ? nullptr : m.memories[s].data());
            if (tensors_.named)
              for (auto& known : m.extents) c.extents.push_back(&known);
            c.flags = m.flags;
            c.sequence = step;
            Arena arena;
            const std::size_t asked = route->bytes(c.extents).together;
            arena.reserve(asked + kGuard);
            c.arena = &arena;
            Workers workers(tensors_.threads);
            m.result = allreduce_compressed(transport, *route, c, workers);
            const std::byte* const guard = arena.data() + asked;
            CHECK(std::all_of(guard, guard + kGuard, [](std::byte b) { return b == std::byte{0}; }));
          },
          options);
      ++step;
    }
    // |rank 0's result - exact sum of the values| / |exact sum|, without what lies in memories.
    double error() {
      double wrong = 0, all = 0;
      for (std::uint64_t i = 0; i < count_; ++i) {
        double exact = 0;
        for (const Member& m : members_) exact += static_cast<double>(m.values[i]);
        wrong += std::pow(static_cast<double>(members_[0].out[i]) - exact, 2);
        all += exact * exact;
      }
      return all > 0 ? std::sqrt(wrong / all) : std::sqrt(wrong);
    }
    // The share of the exact sum's squares that the result has.
    double kept() { return 1 - std::pow(error(), 2); }
    void identical() {
      for (const Member& m : members_) {
        CHECK(m.result.flags == 0);
        CHECK_FALSE(m.result.error.has_value());
        CHECK(difference(m.out, members_[0].out) == "");
      }
    }

   private:
    static constexpr std::size_t kGuard = 1 << 16;  // behind what a call asks for
    Tensors tensors_;
    std::shared_ptr<const Layout> layout_;
    std::uint64_t count_ = 0;
    std::vector<Member> members_;
  };

  // A matrix of exactly this rank, row by row.
  std::vector<float> low_rank_values(std::uint64_t rows, std::uint64_t cols, int rank, std::uint64_t seed) {
    std::vector<float> v(rows * cols);
    for (int k = 0; k < rank; ++k) {
      const auto p = make_data(Data::normal, seed + 2 * static_cast<std::uint64_t>(k), rows),
                 q = make_data(Data::normal, seed + 1 + 2 * static_cast<std::uint64_t>(k), cols);
      for (std::uint64_t i = 0; i < rows; ++i)
        for (std::uint64_t j = 0; j < cols; ++j) v[i * cols + j] += p[i] * q[j];
    }
    return v;
  }

  // A matrix of rank 4 that has this share of the squares, and noise.
  std::vector<float> signal_and_noise(std::uint64_t rows, std::uint64_t cols, double share, std::uint64_t seed,
                                      std::uint64_t noise_seed = 100) {
    auto v = low_rank_values(rows, cols, 4, seed);
    const auto noise = make_data(Data::normal, seed + noise_seed, v.size());
    const auto squares = [](const std::vector<float>& x) {
      double sum = 0;
      for (const float e : x) sum += static_cast<double>(e) * static_cast<double>(e);
      return sum;
    };
    const double signal = std::sqrt(share / squares(v)), rest = std::sqrt((1 - share) / squares(noise));
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(signal * static_cast<double>(v[i]) + rest * static_cast<double>(noise[i]));
    return v;
  }

  }  // namespace

  TEST_CASE("shapes come from the count alone and always hold it") {
    const auto word = make_codec("powersgd:r=2,min=100")->parameter_word();
    const auto is = [&](std::uint64_t count, std::uint64_t rows, std::uint64_t cols, std::uint32_t rank) {
      const Matrix m = powersgd::matrix_of(count, word);
      CAPTURE(count);
      CHECK(m.rows == rows);
      CHECK(m.cols == cols);
      CHECK(m.rank == rank);
    };
    is(16384, 128, 128, 2);
    is(100352, 256, 392, 2);  // 128 x 784
    is(16381, 128, 128, 2);   // prime: the last row is short
    is(10240, 80, 128, 2);
    is(99, 0, 0, 0);     // below min
    is(100, 10, 10, 0);  // 4 * 2 * 20 > 100
    is(256, 16, 16, 2);  // 4 * 2 * 32 = 256
    is(0, 0, 0, 0);
    is(std::uint64_t{1} << 24, 4096, 4096, 2);
    is((std::uint64_t{1} << 34) + 1, 130561, 131585, 2);
    for (const char* spec : {"powersgd", "powersgd:r=8,min=1"})
      for (std::uint64_t count = 1; count < 20000; count += count < 600 ? 1 : 37) {
        const Matrix m = powersgd::matrix_of(count, make_codec(spec)->parameter_word());
        if (m.rank == 0) continue;
        CHECK(m.rows * m.cols >= count);
        CHECK((m.rows - 1) * m.cols < count);
        CHECK(m.rank <= std::min(m.rows, m.cols));
      }
  }

  TEST_CASE("columns to choose from are divisors around the root, first those that nothing is known of") {
    for (const std::uint64_t count :
         {2048000, 3906816, 128000, 4096, 16777216, 16381, 10007, 30522 * 768, 512 * 4608, 64 * 27 * 3})
      for (const char* spec : {"powersgd", "powersgd:r=4"}) {
        const auto word = make_codec(spec)->parameter_word();
        const auto cols = powersgd::candidates_of(count, word);
        CAPTURE(count);
        const Matrix own = powersgd::matrix_of(count, word);
        CHECK(cols.empty() == (own.rank == 0));
        if (cols.empty()) continue;
        CHECK(cols[0] == own.cols);
        CHECK(cols.size() <= powersgd::kMostCandidates);
        const double root = std::sqrt(static_cast<double>(count));
        std::size_t expected = 1;
        for (std::uint64_t c = 1; c <= count; c += c < 100000 ? 1 : count) {
          const auto x = static_cast<double>(c);
          const bool legal = count % c == 0 && c != own.cols && 4 * own.rank * (c + count / c) <= count &&
                             x >= root / 16.001 && x <= 16.001 * root;
          expected += legal;
          CHECK((std::count(cols.begin(), cols.end(), c) == 1) == (legal || c == own.cols));
        }
        CHECK(cols.size() == std::min(expected, powersgd::kMostCandidates));
      }
    const auto has = [](std::uint64_t count, std::uint64_t c) {
      const auto cols = powersgd::candidates_of(count, make_codec("powersgd")->parameter_word());
      return std::find(cols.begin(), cols.end(), c) != cols.end();
    };
    CHECK((has(1000 * 2048, 2048) && has(5087 * 768, 768) && has(50257 * 768, 768) && has(512 * 4608, 4608) &&
           has(4096 * 25088, 25088)));
  }

  TEST_CASE("found extents keep what the true ones keep, and those that are guessed do not") {
    struct Case {
      std::uint64_t rows, cols;
      double share;
    };
    for (const Case& c :
         kSanitized
             ? std::vector<Case>{{250, 512, .6}}
             : std::vector<Case>{
                   {1000, 2048, .61}, {5087, 768, .6}, {250, 512, .4}, {768, 3072, .2}, {512, 4608, .3}, {64, 576, .5}})
      for (const int ranks : {1, 3}) {
        if (ranks == 3 && c.rows * c.cols > 300000) continue;
        // Every rank has noise of its own about one matrix.
        const auto run = [&](const char* spec, bool named, std::uint64_t* cols) {
          World world({make_codec(spec), {c.rows * c.cols}, false, true, false, 1, {}, named}, ranks);
          for (std::size_t r = 0; r < world.members().size(); ++r)
            world.members()[r].values = signal_and_noise(c.rows, c.cols, c.share, 7, 100 + r);
          double kept = 0;
          for (int call = 0; call < 3; ++call) {
            world.run();
            world.identical();
            kept = world.kept();
          }
          for (const auto& m : world.members()) CHECK(m.extents[0].cols == world.members()[0].extents[0].cols);
          *cols = world.members()[0].extents[0].cols;
          return kept;
        };
        std::uint64_t cols = 0;
        const double truth = run(("powersgd:r=8,cols=" + std::to_string(c.cols)).c_str(), true, &cols),
                     found = run("powersgd:r=8", true, &cols), guessed = run("powersgd:r=8", false, &cols);
        CAPTURE(c.rows);
        CAPTURE(c.cols);
        CAPTURE(ranks);
        CAPTURE(found);
        CAPTURE(guessed);
        CHECK(truth > .3 * c.share);
        CHECK(found >= .97 * truth);
        if (powersgd::matrix_of(c.rows * c.cols, make_codec("powersgd:r=8")->parameter_word()).cols != c.cols)
          CHECK(guessed < .7 * truth);
      }
  }

  TEST_CASE("noise has no extents: what is found costs no more floats than the guess") {
    for (const std::uint64_t count : {128000, 65536, 480000}) {
      World world({make_codec("powersgd"), {count}, true, true, false, 1, {}, true}, 2);
      for (std::size_t r = 0; r < 2; ++r) world.members()[r].values = make_data(Data::normal, r + 5, count);
      world.run();
      world.identical();
      const auto word = make_codec("powersgd")->parameter_word();
      const Matrix found = powersgd::matrix_of(count, word, world.members()[0].extents[0].cols),
                   guess = powersgd::matrix_of(count, word);
      CAPTURE(count);
      CHECK(found.rows + found.cols <= guess.rows + guess.cols + (guess.rows + guess.cols) / 8);
    }
  }

  TEST_CASE("zeros tell nothing: the first call with values finds the extents, and a rank of zeros does not disturb") {
    World world({make_codec("powersgd:r=4"), {250 * 512, 5000}, true, true, false, 1, {}, true}, 2);
    world.run();
    for (const auto& m : world.members()) CHECK(m.extents[0].cols == 0);
    world.members()[0].values = signal_and_noise(250, 512, .6, 3);
    world.members()[0].values.resize(world.count());
    world.run();
    world.identical();
    for (const auto& m : world.members()) CHECK(m.extents[0].cols == 512);
    for (const auto& m : world.members()) CHECK(m.extents[1].cols == 0);
    world.run();
    world.identical();
  }

  TEST_CASE("the first calls are exact where that is asked for, and then extents are known") {
    World world({make_codec("powersgd:start=3,r=4"), {250 * 512, 100}, true, true, false, 1, {}, true}, 3);
    for (int call = 0; call < 5; ++call) {
      for (std::size_t r = 0; r < 3; ++r) {
        world.members()[r].values = signal_and_noise(250, 512, .6, 20 + 10 * static_cast<std::uint64_t>(call) + r);
        world.members()[r].values.resize(world.count(), 1.0f);
      }
      world.run();
      world.identical();
      CAPTURE(call);
      CHECK((world.error() < 1e-6) == (call < 3));
      CHECK((world.members()[1].extents[0].cols == 512) == (call >= 2));
      if (call >= 3) CHECK(world.kept() > .5);
    }
  }

  TEST_CASE("ranks that know different extents are told by the headers and find them anew") {
    World world({make_codec("powersgd:r=2"), {128000, 20000}, true, true, false, 1, {}, true}, 3);
    std::vector<double> inputs(world.count()), outputs(world.count());
    const auto step = [&](std::uint64_t seed, const RunOptions& options = {}) {
      for (std::size_t r = 0; r < 3; ++r) {
        world.members()[r].values = signal_and_noise(250, 512, .6, seed);
        world.members()[r].values.resize(world.count(), 0.5f);
        for (std::size_t i = 0; i < world.count(); ++i) inputs[i] += static_cast<double>(world.members()[r].values[i]);
      }
      world.run(options);
      for (std::size_t i = 0; i < world.count(); ++i) outputs[i] += static_cast<double>(world.members()[0].out[i]);
    };
    step(1);
    step(2);
    world.members()[1].extents[0].cols = 1000;
    step(3);
    world.identical();
    for (const auto& m : world.members()) CHECK(m.extents[0].cols == 0);
    step(4);
    world.identical();
    for (const auto& m : world.members()) CHECK(m.extents[0].cols == 512);
    step(5);
    world.identical();
    // Nothing is lost on the way.
    double worst = 0;
    for (std::size_t i = 0; i < world.count(); ++i) {
      double left = outputs[i];
      for (const auto& m : world.members())
        left += static_cast<double>(i < 128000 ? m.memories[0][i] : m.memories[1][i - 128000]);
      worst = std::max(worst, std::fabs(left - inputs[i]));
    }
    CHECK(worst < 1e-4);
    // What a call takes instead has longer factors than what the ranks know: primes in place of 358 x 357.
    World longer({make_codec("powersgd:r=2"), {251 * 509}, true, true, false, 1, {}, true}, 3);
    for (auto& m : longer.members()) m.values = make_data(Data::normal, 9, longer.count());
    longer.run();
    for (std::size_t r = 0; r < 3; ++r) longer.members()[r].extents[0].cols = r == 1 ? 357 : 358;
    longer.run();
    longer.identical();
    for (const auto& m : longer.members()) CHECK(m.extents[0].cols == 0);
    // One rank misses what the others find: the sums that it receives are corrupt.
    World other({make_codec("powersgd:r=2"), {128000}, true, true, false, 1, {}, true}, 3);
    for (auto& m : other.members()) m.values = signal_and_noise(250, 512, .6, 9);
    RunOptions options;
    options.tamper = [](int receiver, int number, int from, std::span<std::uint8_t> bytes) {
      if (receiver == 1 && number == 4 && from == 2) bytes[70] ^= 0x10;
    };
    other.run(options);
    CHECK(other.members()[0].extents[0].cols == 512);
    CHECK(other.members()[1].extents[0].cols == 0);
    CHECK(other.members()[1].result.error.has_value());
    for (int call = 0; call < 3; ++call) {
      other.run();
      other.identical();
    }
    for (const auto& m : other.members()) CHECK(m.extents[0].cols == 512);
  }

  TEST_CASE("extents may change between calls and with the element count") {
    World world({make_codec("powersgd:r=2"), {128000}, true, true, false, 1, {}, true}, 2);
    const auto codec = make_codec("powersgd:r=2");
    for (const std::uint64_t cols : {512, 320, 1000, 0, 512}) {
      for (std::size_t r = 0; r < 2; ++r) {
        auto& m = world.members()[r];
        m.values = signal_and_noise(250, 512, .6, 40);
        m.extents[0].cols = cols;
        m.extents[0].count = cols == 1000 ? 127999 : 128000;  // of another tensor: what was known is void
      }
      world.run();
      world.identical();
      if (cols == 1000) CHECK(world.members()[0].extents[0].count == 128000);
    }
    powersgd::Extents given{.count = 128000, .cols = 12800, .given = true};
    CHECK(powersgd::feedback_elements(128000, *codec, &given) == 128000 + 2 * 12800);
    CHECK(powersgd::matrix_of(128000, *codec, &given).cols == 12800);
    given.count = 5;
    CHECK(powersgd::matrix_of(128000, *codec, &given).cols == 400);
    CHECK(powersgd::finds(128000, *codec, &given));
    CHECK_FALSE(powersgd::finds(128000, *make_codec("powersgd:cols=512"), &given));
  }

  TEST_CASE("settings out of range are refused with what is legal") {
    const auto says = [](const std::string& spec, const std::string& part) {
      CAPTURE(spec);
      try {
        make_codec(spec);
        FAIL("accepted");
      } catch (const Error& e) {
        CHECK(std::string(e.what()).find(part) != std::string::npos);
      }
    };
    says("powersgd:r=0", "1 to 8");
    says("powersgd:r=9", "1 to 8");
    says("powersgd:r=1.5", "1 to 8");
    says("powersgd:min=0", "1 to 268435455");
    says("powersgd:memory=momentum", "residual or none");
    says("powersgd:decay=0.9", "decay");
    says("powersgd:cols=-1", "0 to 16777216");
    says("powersgd:cols=2.5", "0 to 16777216");
    says("powersgd:start=20000000", "0 to 16777216");
    CHECK(make_codec("powersgd")->spec() == "powersgd:r=1,min=4096,cols=0,start=0,gemm=auto");
    CHECK(make_codec("powersgd:r=8,min=1,memory=none")->feedback_elements(10000) == 0);
    CHECK(make_codec("powersgd:r=3,cols=50")->feedback_elements(10000) == 10000 + 3 * 50);
    CHECK(make_codec("powersgd:r=3")->feedback_elements(10000) == 10000 + 10000 / 4);  // whatever is found
    CHECK(make_codec("powersgd:r=1")->feedback_elements(1000000) == 1000000 + 16 * 1000);
    CHECK(make_codec("powersgd:r=3")->feedback_elements(4095) == 4095);
  }

  TEST_CASE("only low_rank runs it and it runs nothing else") {
    const auto codec = make_codec("powersgd");
    CHECK(algorithms_for(*codec, 4) == "low_rank");
    CHECK(first_algorithm(*codec, 4) == Algorithm::low_rank);
    CHECK(entry_of(Algorithm::allgather).why_unsupported(*codec, 4).find("low_rank") != std::string::npos);
    CHECK(entry_of(Algorithm::low_rank).why_unsupported(*make_codec("3lc"), 4).find("powersgd") != std::string::npos);
    CHECK(first_algorithm(*make_codec("3lc"), 4) == Algorithm::allgather);
    CHECK_FALSE(codec->decode_add_piece({}, 1, {}, nullptr));
  }

  TEST_CASE("products have the definition's bits on every SIMD target and for every cut") {
    for (const auto& matrix : {std::pair<std::uint64_t, int>{4096, 1}, {10007, 2}, {10240, 3}, {40961, 7}, {5041, 8}}) {
      const std::uint64_t count = matrix.first;
      const int rank = matrix.second;
      const Matrix m =
          powersgd::matrix_of(count, make_codec("powersgd:min=1,r=" + std::to_string(rank))->parameter_word());
      CAPTURE(count);
      REQUIRE(m.rank == static_cast<std::uint32_t>(rank));
      const auto values = make_data(Data::normal, 1, count), memory = make_data(Data::laplace, 2, count);
      const auto q = make_data(Data::normal, 3, m.right()), p = make_data(Data::normal, 4, m.rows * m.rank);
      for (const bool with : {false, true}) {
        CAPTURE(with);
        const auto a = [&](std::uint64_t i) { return with ? values[i] + memory[i] : values[i]; };
        std::vector<float> expected_p(p.size()), expected_q(q.size()), expected_out(count), expected_residual(count);
        for (std::uint64_t k = 0; k < m.rank; ++k) {
          for (std::uint64_t i = 0; i < m.rows; ++i) {
            float lane[32] = {};
            for (std::uint64_t j = 0; j < m.cols && i * m.cols + j < count; ++j)
              lane[j % 32] += a(i * m.cols + j) * q[k * m.cols + j];
            for (int half = 16; half > 0; half /= 2)
              for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
            expected_p[k * m.rows + i] = lane[0];
          }
          for (std::uint64_t i = 0; i < count; ++i)
            expected_q[k * m.cols + i % m.cols] += a(i) * p[k * m.rows + i / m.cols];
        }
        for (std::uint64_t i = 0; i < count; ++i) {
          for (std::uint64_t k = 0; k < m.rank; ++k)
            expected_out[i] += p[k * m.rows + i / m.cols] * q[k * m.cols + i % m.cols];
          expected_residual[i] = a(i) - expected_out[i] * 0.3f;
        }
        for_each_target([&](const std::string& target) {
          CAPTURE(target);
          for (const std::uint64_t cuts : {1, 3}) {
            Guarded<float> got_p(p.size()), got_q(q.size()), out(count), residual(count);
            const powersgd::Source source{values.data(), with ? memory.data() : nullptr};
            for (std::uint64_t c = 0; c < cuts; ++c) {
              powersgd::multiply(m, source, q.data(), got_p.data(), m.rows * c / cuts, m.rows * (c + 1) / cuts);
              powersgd::multiply_transposed(m, source, p.data(), got_q.data(), m.cols * c / cuts,
                                            m.cols * (c + 1) / cuts);
              powersgd::rebuild(m, source, p.data(), q.data(), 0.3f, out.data(), residual.data(), m.rows * c / cuts,
                                m.rows * (c + 1) / cuts);
            }
            CHECK(difference(got_p.span(), std::span<const float>(expected_p)) == "");
            CHECK(difference(got_q.span(), std::span<const float>(expected_q)) == "");
            CHECK(difference(out.span(), std::span<const float>(expected_out)) == "");
            CHECK(difference(residual.span(), std::span<const float>(expected_residual)) == "");
            CHECK((got_p.intact() && got_q.intact() && out.intact() && residual.intact()));
          }
        });
      }
    }
  }

  TEST_CASE("columns become orthonormal; zero and dependent ones are replaced or zero") {
    const std::uint64_t n = 333;
    for (const float scale : {1.0f, 0x1p-120f, 0x1p-140f, 0x1p90f}) {
      auto columns = make_data(Data::normal, 5, 5 * n);
      for (float& x : columns) x *= scale;
      std::fill(columns.begin() + n, columns.begin() + 2 * n, 0.0f);               // column 1: zero
      for (std::uint64_t i = 0; i < n; ++i) columns[3 * n + i] = -2 * columns[i];  // column 3: column 0 again
      for (const bool redraw : {false, true}) {
        auto c = columns;
        const powersgd::Fresh fresh{17, 3};
        powersgd::orthonormalise(c.data(), n, 5, redraw ? &fresh : nullptr);
        for (std::uint64_t a = 0; a < 5; ++a)
          for (std::uint64_t b = 0; b < 5; ++b) {
            double dot = 0;
            for (std::uint64_t i = 0; i < n; ++i)
              dot += static_cast<double>(c[a * n + i]) * static_cast<double>(c[b * n + i]);
            const bool gone = !redraw && (a == 1 || a == 3 || b == 1 || b == 3);
            CAPTURE(a);
            CAPTURE(b);
            CHECK(dot == doctest::Approx(a == b && !gone ? 1.0 : 0.0).epsilon(scale < 0x1p-125f ? 1e-2 : 1e-5));
          }
      }
    }
  }

  TEST_CASE("orthonormal columns have the definition's bits on every SIMD target") {
    for (const std::uint64_t n : {3, 333, 512, 513, 1300}) {
      CAPTURE(n);
      const powersgd::Fresh fresh{(std::uint64_t{1} << 33) + 17, 3};
      auto columns = make_data(Data::normal, 5, 3 * n);
      std::fill_n(columns.begin() + static_cast<std::ptrdiff_t>(n), n, 0.0f);  // is drawn anew
      auto expected = columns;
      const auto dot = [&](const float* a, const float* b) {
        double lane[512] = {};
        for (std::uint64_t i = 0; i < n; ++i) lane[i % 512] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        for (int half = 256; half > 0; half /= 2)
          for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
        return lane[0];
      };
      for (std::uint32_t k = 0; k < 3; ++k) {
        float* const c = expected.data() + k * n;
        if (k == 1)
          for (std::uint64_t i = 0; i < n; ++i)
            c[i] = Random(fresh.element, 0x50534700 + k, fresh.step).uniform(i) - 0.5f;
        for (std::uint32_t pass = 0; pass < 2; ++pass)
          for (std::uint32_t u = 0; u < k; ++u) {
            const float* const unit = expected.data() + u * n;
            const double along = dot(unit, c);
            for (std::uint64_t i = 0; i < n; ++i)
              c[i] = static_cast<float>(static_cast<double>(c[i]) - along * static_cast<double>(unit[i]));
          }
        const double scale = 1.0 / std::sqrt(dot(c, c));
        for (std::uint64_t i = 0; i < n; ++i) c[i] = static_cast<float>(static_cast<double>(c[i]) * scale);
      }
      for_each_target([&](const std::string& target) {
        CAPTURE(target);
        auto got = columns;
        powersgd::orthonormalise(got.data(), n, 3, &fresh);
        CHECK(difference(got, expected) == "");
      });
    }
  }

  TEST_CASE("a column that nearly depends on another one ends orthogonal to it") {
    const std::uint64_t n = 1000;
    for (const float noise : {0x1p-12f, 0x1p-16f, 0x1p-19f}) {
      auto c = make_data(Data::normal, 6, 2 * n);
      for (std::uint64_t i = 0; i < n; ++i) c[n + i] = c[i] + noise * c[n + i];
      powersgd::orthonormalise(c.data(), n, 2, nullptr);
      double across = 0, length = 0;
      for (std::uint64_t i = 0; i < n; ++i) {
        across += static_cast<double>(c[i]) * static_cast<double>(c[n + i]);
        length += static_cast<double>(c[n + i]) * static_cast<double>(c[n + i]);
      }
      CHECK(length == doctest::Approx(1));
      CHECK(std::fabs(across) < 1e-6);
    }
  }

  TEST_CASE("tensors of the rank are recovered in the first step") {
    for (const int ranks : {1, 2, 3, 8})
      for (const int r : {1, 2, 4}) {
        World world({make_codec("powersgd:r=" + std::to_string(r)), {100352, 10000}}, ranks);
        const auto a = low_rank_values(128, 784, 1, 10);  // as 256 x 392 its rank is 2: rows are cut in halves
        const auto b = low_rank_values(100, 100, r, 30);
        for (std::size_t k = 0; k < world.members().size(); ++k) {
          auto& v = world.members()[k].values;
          for (std::size_t i = 0; i < a.size(); ++i) v[i] = r == 4 ? a[i] * static_cast<float>(k + 1) : 0.0f;
          for (std::size_t i = 0; i < b.size(); ++i) v[a.size() + i] = b[i] * (k % 2 ? -0.5f : 1.0f);
        }
        world.run();
        world.identical();
        CAPTURE(ranks);
        CAPTURE(r);
        CHECK(world.error() < 1e-5);
      }
  }

  TEST_CASE("a warm start improves from step to step and a fresh one does not") {
    // Singular values 1, 1/2, 1/4 ...: the best approximation of rank 1 is off by 1/2 of the first.
    std::vector<float> values(64 * 64);
    for (int k = 0; k < 6; ++k) {
      auto one = low_rank_values(64, 64, 1, 100 + 2 * static_cast<std::uint64_t>(k));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += std::ldexp(one[i], -k);
    }
    const auto errors = [&](const char* spec) {
      World world({make_codec(spec), {4096}}, 2);
      std::vector<double> all;
      for (int step = 0; step < 12; ++step) {
        for (auto& m : world.members()) {
          m.values = values;
          std::fill_n(m.memories[0].begin(), std::min<std::size_t>(m.memories[0].size(), 4096),
                      0.0f);  // the warm start alone
        }
        world.run();
        all.push_back(world.error());
      }
      return all;
    };
    const auto warm = errors("powersgd"), cold = errors("powersgd:memory=none");
    CHECK(warm[0] == cold[0]);
    for (std::size_t s = 1; s < warm.size(); ++s) CHECK(warm[s] <= warm[s - 1] * 1.0001);
    CHECK(warm.back() < 0.99 * warm[0]);
    double mean = 0;
    for (const double e : cold) mean += e / static_cast<double>(cold.size());
    CHECK(warm.back() < mean);
    CHECK(*std::max_element(cold.begin(), cold.end()) > 1.001 * *std::min_element(cold.begin(), cold.end()));
  }

  TEST_CASE("results and residuals together are the sum of all inputs whatever the layout") {
    for (const int ranks : {1, 2, 3, 8})
      for (const char* spec : {"powersgd", "powersgd:r=3,min=1", "powersgd:r=8,min=300"}) {
        Tensors tensors{make_codec(spec), {1, 5000, 4096, 7, 10007, 300, 1 << 14, 0, 65537}};
        tensors.in_place = ranks == 3;
        tensors.threads = ranks == 2 ? 3 : 1;
        tensors.checksum = ranks != 8;
        World world(tensors, ranks);
        std::vector<double> inputs(world.count()), outputs(world.count());
        for (int step = 0; step < effort(6, 6, 6, 2); ++step) {
          for (std::size_t r = 0; r < world.members().size(); ++r) {
            auto& v = world.members()[r].values;
            v = make_data(step % 2 ? Data::sparse : Data::laplace, static_cast<std::uint64_t>(50 * step) + r,
                          world.count());
            for (std::size_t i = 0; i < v.size(); ++i) inputs[i] += static_cast<double>(v[i]);
          }
          world.run();
          world.identical();
          for (std::size_t i = 0; i < inputs.size(); ++i) outputs[i] += static_cast<double>(world.members()[0].out[i]);
        }
        double worst = 0;
        std::uint64_t at = 0;
        for (std::size_t s = 0; s < tensors.sizes.size(); at += tensors.sizes[s++])
          for (std::uint64_t i = 0; i < tensors.sizes[s]; ++i) {
            double left = outputs[at + i];
            for (const auto& m : world.members()) left += static_cast<double>(m.memories[s][i]);
            worst = std::max(worst, std::fabs(left - inputs[at + i]));
          }
        CAPTURE(ranks);
        CAPTURE(std::string(spec));
        CHECK(worst < 1e-4 * ranks);
        // Q is the same on all ranks.
        for (const auto& m : world.members())
          CHECK(difference(std::span<const float>(m.memories[8]).subspan(65537),
                           std::span<const float>(world.members()[0].memories[8]).subspan(65537)) == "");
      }
  }

  TEST_CASE("threads and placement change no bit") {
    std::vector<float> first;
    for (const bool in_place : {false, true})
      for (const int threads : {1, 2, 3}) {
        World world({make_codec("powersgd:r=2"), {50000, 8191, 100}, true, true, in_place, threads, {}}, 3);
        for (int step = 0; step < 3; ++step) {
          for (std::size_t r = 0; r < 3; ++r)
            world.members()[r].values =
                make_data(Data::normal, 10 * static_cast<std::uint64_t>(step) + r, world.count());
          world.run();
        }
        if (first.empty()) first = world.members()[0].out;
        CHECK(difference(world.members()[2].out, first) == "");
      }
  }

  TEST_CASE("zero gradients give zeros and the next ones are not stuck") {
    World world({make_codec("powersgd:r=2"), {10000}}, 2);
    world.run();
    world.identical();
    for (const float x : world.members()[0].out) CHECK(std::bit_cast<std::uint32_t>(x) == 0);
    const auto b = low_rank_values(100, 100, 2, 7);
    for (auto& m : world.members()) m.values = b;
    world.run();
    world.identical();
    CHECK(world.error() < 1e-5);
  }

  TEST_CASE("odd counts, tiny, subnormal and huge values") {
    for (const std::uint64_t count : {1, 2, 3, 97, 4099, 10007, 65537})
      for (const Data data : {Data::normal, Data::tiny, Data::subnormal, Data::huge, Data::constant, Data::zeros}) {
        const auto codec = make_codec("powersgd:r=2,min=64");
        World world({codec, {count}}, 3);
        for (int step = 0; step < 3; ++step) {
          for (std::size_t r = 0; r < 3; ++r) {
            auto& v = world.members()[r].values = make_data(data, r + static_cast<std::uint64_t>(step), count);
            for (float& x : v) x = std::clamp(x, -codec->traits().max_magnitude, codec->traits().max_magnitude);
          }
          world.run();
          world.identical();
        }
        CAPTURE(count);
        CAPTURE(name_of(data));
        for (const float x : world.members()[0].out) REQUIRE(std::isfinite(x));
        for (const float x : world.members()[1].memories[0]) REQUIRE(std::isfinite(x));
        if (powersgd::matrix_of(count, codec->parameter_word()).rank == 0) CHECK(world.error() < 1e-6);
      }
  }

  TEST_CASE("tensors of other codecs and padding are neither read nor written") {
    World world({make_codec("powersgd"), {5000, 333, 9000}, true, true, false, 1, {1}}, 2);
    for (auto& m : world.members()) {
      m.values = make_data(Data::normal, 3, world.count());
      std::fill_n(m.values.begin() + 5000, 333, std::nanf(""));
    }
    world.run();
    world.identical();
    for (std::size_t i = 5000; i < 5333; ++i) CHECK(world.members()[0].out[i] == 12345.0f);
    for (std::size_t i = 0; i < 5000; ++i) REQUIRE(std::isfinite(world.members()[0].out[i]));
  }

  TEST_CASE("a rank without memory does not disturb the others and has their Q afterwards") {
    World world({make_codec("powersgd"), {10000}}, 3);
    for (int step = 0; step < 4; ++step) {
      for (std::size_t r = 0; r < 3; ++r)
        world.members()[r].values = make_data(Data::normal, 20 * static_cast<std::uint64_t>(step) + r, 10000);
      if (step == 2) std::fill(world.members()[1].memories[0].begin(), world.members()[1].memories[0].end(), 0.0f);
      world.run();
      world.identical();
      CHECK(std::equal(world.members()[0].memories[0].begin() + 10000, world.members()[0].memories[0].end(),
                       world.members()[1].memories[0].begin() + 10000));
    }
  }

  TEST_CASE("a flag on one rank leaves results and memories of all untouched") {
    World world({make_codec("powersgd"), {10000}}, 3);
    for (std::size_t r = 0; r < 3; ++r) world.members()[r].values = make_data(Data::normal, r, 10000);
    world.run();
    const auto before = world.members()[0].memories;
    world.members()[2].flags = kFlagExact;
    world.run();
    for (auto& m : world.members()) {
      CHECK(m.result.flags == kFlagExact);
      CHECK(m.out == std::vector<float>(10000, 12345.0f));
    }
    CHECK(world.members()[0].memories == before);
  }

  TEST_CASE("corrupt exchanges are an error on every rank that used them, and no memory changes") {
    // Exchange 0: headers; 1 and 3: shards of P and Q to their owners; 2 and 4: sums to all.
    for (const int exchange : {1, 2, 3, 4})
      for (const std::size_t at : {std::size_t{5}, std::size_t{7}, std::size_t{20}, std::size_t{70}}) {
        World world({make_codec("powersgd:r=2"), {10000, 50}}, 3);
        for (std::size_t r = 0; r < 3; ++r) world.members()[r].values = make_data(Data::normal, r, world.count());
        world.run();
        const auto before = world.members()[1].memories;
        RunOptions options;
        options.tamper = [&](int receiver, int number, int from, std::span<std::uint8_t> bytes) {
          if (receiver == 1 && number == exchange && from == 2) bytes[at] ^= 0x10;
        };
        world.run(options);
        CAPTURE(exchange);
        CAPTURE(at);
        for (std::size_t r = 0; r < 3; ++r) {
          // Rank 1 owns a shard: when what it received was corrupt, its sums are refused by all; and without P it has
          // no Q, which all add up. The last sums are its own affair.
          const bool concerned = r == 1 || exchange != 4;
          const auto& error = world.members()[r].result.error;
          CHECK(error.has_value() == concerned);
          if (error) CHECK(error->code() == ErrorCode::payload_corrupt);
        }
        CHECK(world.members()[1].memories == before);
      }
  }

  TEST_CASE("random bytes in place of an exchange never crash it") {
    const Random random(3, 9);
    std::uint64_t next = 0;
    for (int round = 0; round < 200; ++round) {
      World world({make_codec("powersgd:r=2"), {10000, 50}, true, round % 2 == 0, false, 1, {}}, 2);
      for (auto& m : world.members()) m.values = make_data(Data::normal, 4, world.count());
      RunOptions options;
      options.tamper = [&](int receiver, int number, int from, std::span<std::uint8_t> bytes) {
        if (receiver != 1 || number != 1 + round % 4 || from != 0) return;
        const auto n = round % 3 == 0 ? bytes.size() : std::size_t{1 + random.bits(next++) % 8};
        const std::size_t start = round % 2 ? 64 : 0;  // without checksums the floats alone
        for (std::size_t i = 0; i < n; ++i, next += 2)
          bytes[start + random.bits(next) % (bytes.size() - start)] = static_cast<std::uint8_t>(random.bits(next + 1));
      };
      world.run(options);
      if (!world.members()[1].result.error)
        for (const float x : world.members()[1].out) REQUIRE_FALSE(std::isnan(x));
    }
  }
}
