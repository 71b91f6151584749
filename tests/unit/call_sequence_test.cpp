// Ranks are simulated: each has its own values and addresses, and sums of evidence are made over all of them.
#include "schedule/call_sequence.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "schedule/sketch.hpp"
#include "support/effort.hpp"

using namespace crimp;
using crimp::test::effort;
using crimp::test::Turns;

namespace {

using Vector = std::vector<float>;

Vector normal(std::size_t count, std::uint64_t seed, float scale = 1) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> draw(0, scale);
  Vector v(count);
  for (float& x : v) x = draw(bits);
  return v;
}
Vector sum(const Vector& a, const Vector& b, float scale = 1) {
  Vector v(a.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = a[i] + scale * b[i];
  return v;
}

Vector product(const Vector& a, const Vector& b) {
  Vector v(a.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = a[i] * b[i];
  return v;
}
// 2 to the power of normal values with a deviation of 2: what elements of a weight's gradient differ by where inputs
// and units do.
Vector octaves(std::size_t count, std::uint64_t seed) {
  Vector v = normal(count, seed, 2);
  for (float& x : v) x = std::exp2(x);
  return v;
}

Vector squares_of(Vector v) {
  for (float& x : v) x *= x;
  return v;
}

Sketch sketch_of(const Vector& v, std::uint64_t reads = Sample::kClusters, Dtype type = Dtype::f32) {
  return Sketch(v.size(), type, reads, [&](std::uint64_t first, std::uint64_t count, float* to) {
    REQUIRE(first + count <= v.size());
    std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(first), count, to);
  });
}

// What all ranks do in step: each call's values and send address are given per rank.
class World {
 public:
  explicit World(int ranks, int periods = 3) {
    for (int r = 0; r < ranks; ++r)
      ranks_.push_back(std::make_unique<CallSequence>(periods, [this, r](std::string_view prefix) {
        forgotten[static_cast<std::size_t>(r)].insert(std::string(prefix));
      }));
    forgotten.resize(ranks_.size());
  }
  struct One {
    Vector values;
    const void* address = nullptr;
  };
  // The key of the call's tensor, empty where unknown, "foreign" where a rank doubts it, "apart" where the values on a
  // rank are no gradient's.
  std::string call(const std::vector<One>& ranks, Dtype type = Dtype::f32) {
    std::vector<CallSequence::Call> calls;
    bool foreign = false, apart = false;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto& [values, address] = ranks[r % ranks.size()];
      calls.push_back(ranks_[r]->begin(values.size(), type, {sketch_of(values), address, address}));
      if (none) ranks_[r]->take_for_none();
      REQUIRE(calls[r].layout->digest() == calls[0].layout->digest());
      apart = apart || calls[r].apart;
      float largest = 0;  // as the backends say it: Inf where anything is not finite
      for (const float v : values) largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : INFINITY;
      foreign = ranks_[r]->magnitude(static_cast<double>(largest)) == CallSequence::Proportion::foreign ||
                calls[r].foreign || foreign;
    }
    const Layout& layout = *calls[0].layout;
    std::string key;
    ends = {0, 0};
    for (const Segment& s : layout.segments)
      if (!s.key.empty()) key = s.key, ends = {s.offset, ranks[0].values.size() - s.offset - s.count};
    REQUIRE(layout.known() == !key.empty());
    if (apart) {
      end(CallSequence::Outcome::apart);
      return "apart";
    }
    foreign = foreign && layout.known();
    end(foreign ? CallSequence::Outcome::foreign : CallSequence::Outcome::tensor);
    return foreign ? "foreign" : key;
  }
  bool none = false;                             // each rank takes its values for none of a gradient, and none is asked
  std::pair<std::uint64_t, std::uint64_t> ends;  // of the last call, that are summed exactly

  // Evidence is gathered over the ranks. They run one after another here, so once for every exchange: what each would
  // add is learnt, and the next time all are given the sum. In the end all have come to every exchange.
  void end(CallSequence::Outcome outcome) {
    if (ranks_.size() == 1) return ranks_[0]->end(outcome, [](std::span<std::int64_t>) {});
    std::vector<CallSequence> before;
    for (const auto& rank : ranks_) before.push_back(*rank);
    std::vector<std::vector<std::int64_t>> sums;
    for (;;) {
      std::vector<std::int64_t> more;
      std::size_t most = 0, least = sums.size() + 1;
      for (const auto& rank : ranks_) {
        std::size_t exchange = 0;
        rank->end(outcome, [&](std::span<std::int64_t> numbers) {
          if (exchange < sums.size()) {
            REQUIRE(numbers.size() == sums[exchange].size());
            std::copy(sums[exchange].begin(), sums[exchange].end(), numbers.begin());
          } else if (exchange == sums.size()) {
            REQUIRE((more.empty() || more.size() == numbers.size()));
            more.resize(numbers.size());
            for (std::size_t i = 0; i < numbers.size(); ++i) more[i] += numbers[i];
          }
          ++exchange;
        });
        most = std::max(most, exchange);
        least = std::min(least, exchange);
      }
      if (most == sums.size()) {
        REQUIRE(least == most);
        return;
      }
      sums.push_back(more);
      for (std::size_t r = 0; r < ranks_.size(); ++r) *ranks_[r] = before[r];
    }
  }

  std::string call(const Vector& same, const void* address = nullptr, Dtype type = Dtype::f32) {
    return call(std::vector<One>{{same, address}}, type);
  }
  CallSequence& rank(std::size_t r) { return *ranks_[r]; }
  std::vector<std::set<std::string>> forgotten;

 private:
  std::vector<std::unique_ptr<CallSequence>> ranks_;
};

constexpr std::size_t kCount = 4096;
const void* place(std::size_t i) { return reinterpret_cast<const void*>(0x10000 * (i + 1)); }

// A gradient of SGD: a direction that drifts, and noise of every step's own.
class Gradient {
 public:
  Gradient(std::uint64_t seed, float scale, float noise)
      : seed_(seed), scale_(scale), noise_(noise), direction_(normal(kCount, seed)) {}
  Vector next() {
    direction_ = sum(direction_, normal(kCount, seed_ * 1000 + 2 * ++step_), 0.05f);
    Vector v = sum(direction_, normal(kCount, seed_ * 1000 + 2 * step_ + 1), noise_);
    for (float& x : v) x *= scale_;
    return v;
  }

 private:
  std::uint64_t seed_, step_ = 0;
  float scale_, noise_;
  Vector direction_;
};

}  // namespace

TEST_SUITE("sketch") {
  TEST_CASE(
      "likeness is 1 for equal vectors, near 0 for unrelated ones and for equal directions of very different size") {
    const Vector a = normal(kCount, 1), b = normal(kCount, 2);
    CHECK(Likeness(sketch_of(a), sketch_of(a)).direction.likeness == doctest::Approx(1));
    const Likeness unrelated(sketch_of(a), sketch_of(b));
    CHECK(std::abs(unrelated.direction.likeness) < 0.2);  // 512 values: 4.5 / sqrt(512)
    Vector small = a;
    for (float& x : small) x *= 0.01f;
    CHECK(Likeness(sketch_of(a), sketch_of(small)).direction.likeness ==
          doctest::Approx(0.02).epsilon(0.01));  // 2 * .01 / (1 + .0001)
    CHECK(Likeness(sketch_of(a), sketch_of(small)).magnitudes.likeness <
          0);  // 6.6 octaves apart, where normal values of one size differ by about 1.6
    for (float& x : small) x = -x;
    CHECK(Likeness(sketch_of(a), sketch_of(small)).direction.likeness < 0);
  }

  TEST_CASE("the variance is that of unrelated vectors") {
    double squares = 0, variance = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      const Likeness l(sketch_of(normal(kCount, 100 + 2 * i)), sketch_of(normal(kCount, 101 + 2 * i)));
      squares += l.direction.likeness * l.direction.likeness;
      variance += l.direction.variance;
    }
    CHECK(squares / variance > 0.7);  // chi-square with 200 degrees of freedom: sigma 0.1
    CHECK(squares / variance < 1.3);
  }

  TEST_CASE("tensors of one layer's shape with the same input are not alike in direction though their rows are") {
    const Vector x = normal(100, 3);
    const auto outer = [&](std::uint64_t seed) {
      const Vector d = normal(200, seed);
      Vector v;
      for (const float row : d)
        for (const float column : x) v.push_back(row * column);
      return v;
    };
    double squares = 0, variance = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const Likeness l(sketch_of(outer(10 + 2 * i)), sketch_of(outer(11 + 2 * i)));
      squares += l.direction.likeness * l.direction.likeness;
      variance += l.direction.variance;
    }
    CHECK(squares / variance < 2);
  }

  TEST_CASE("a gradient that is all noise is alike in its magnitudes") {
    const Vector scale = octaves(kCount, 5), other = octaves(kCount, 6);
    double own = 0, foreign = 0;
    for (std::uint64_t i = 0; i < 100; ++i) {
      const Sketch a = sketch_of(product(scale, normal(kCount, 100 + 2 * i)));
      own += Likeness(a, sketch_of(product(scale, normal(kCount, 101 + 2 * i)))).magnitudes.likeness / 100;
      foreign += Likeness(a, sketch_of(product(other, normal(kCount, 101 + 2 * i)))).magnitudes.likeness / 100;
    }
    CHECK(own > 0.3);
    CHECK(std::abs(foreign) < 0.06);  // one pair of tensors, 512 values: 1 / sqrt(512)
  }

  TEST_CASE("zeros, NaN, Inf and short buffers") {
    CHECK_FALSE(sketch_of(Vector(kCount)).usable());
    Vector bad = normal(kCount, 4);
    std::fill(bad.begin(), bad.end(), std::nanf(""));
    CHECK_FALSE(sketch_of(bad).usable());
    std::fill(bad.begin(), bad.end(), INFINITY);
    CHECK_FALSE(sketch_of(bad).usable());
    for (const std::size_t n : {1, 2, 3, 5, 127, 128, 129, 511, 512, 513, 1000}) {
      CHECK(sketch_of(normal(n, n)).usable());
      CHECK(sketch_of(normal(n, n), 8).usable());
    }
    Vector tiny(kCount, 1e-38f), huge(kCount, 3e38f);
    CHECK(Likeness(sketch_of(tiny), sketch_of(tiny)).direction.likeness == doctest::Approx(1));
    CHECK(Likeness(sketch_of(huge), sketch_of(huge)).direction.likeness == doctest::Approx(1));
  }
}

TEST_SUITE("call_sequence") {
  TEST_CASE("of short buffers every value is looked at, once") {
    for (const std::size_t count : {1u, 3u, 20u, 100u, 127u, 128u, 255u, 256u, 400u, 512u, 544u})
      for (const std::uint64_t reads : {std::uint64_t{8}, Sample::kClusters}) {
        CAPTURE(count);
        const Vector v = normal(count, count);
        const auto edge = static_cast<std::ptrdiff_t>(Sample::end_of(count));
        const Sketch sketch = sketch_of(v, reads);
        const auto seen = sketch.sample().values();
        CHECK(Vector(seen.begin(), seen.end()) == Vector(v.begin() + edge, v.end() - edge));
      }
  }

  TEST_CASE("by chance short noise is a gradient's, and not alike") {
    for (const std::size_t count : {20u, 64u, 100u, 127u, 200u, 400u}) {
      int not_gradients = 0, alike = 0;
      for (std::uint64_t i = 0; i < 1000; ++i) {
        const Sketch a = sketch_of(normal(count, 2 * i + 1)), b = sketch_of(normal(count, 2 * i + 2));
        not_gradients += !a.gradient() + !b.gradient();
        const auto direction = Likeness(a, b).direction;
        alike += direction.likeness > 6 * std::sqrt(direction.variance);
      }
      CAPTURE(count);
      CHECK(not_gradients == 0);
      CHECK(alike == 0);
    }
  }

  TEST_CASE("one gradient a step is known from its sixth call on") {
    World world(2);
    Gradient g(1, 1, 1);
    std::string key;
    for (int step = 0; step < 100; ++step) {
      const std::string k = world.call(g.next(), place(0));
      CHECK(k.empty() == (step < 5));
      if (step == 5) key = k;
      if (step >= 5) CHECK(k == key);
    }
    CHECK(world.rank(0).count().tensors == 1);
    CHECK(world.rank(0).count().foreign == 0);
  }

  TEST_CASE("a gradient mostly of noise is known as well, pure noise never") {
    for (const float noise : {1.0f, 2.0f}) {
      World world(4);
      std::vector<Gradient> g;
      for (std::uint64_t r = 0; r < 4; ++r) g.emplace_back(r + 1, 1.0f, noise);
      int known = 0, foreign = 0;
      for (int step = 0; step < 60; ++step) {
        std::vector<World::One> ranks;
        for (auto& of_rank : g) ranks.push_back({of_rank.next(), place(0)});
        const std::string k = world.call(ranks);
        known += !k.empty();
        foreign += k == "foreign";
      }
      CHECK(known >= 40);
      CHECK(foreign == 0);
    }
    World world(2);
    for (std::uint64_t step = 0; step < 300; ++step) CHECK(world.call(normal(kCount, 1000 + step), place(0)) == "");
    CHECK(world.rank(0).count().ambiguous == 1);
  }

  TEST_CASE("pure noise in short calls is searched less and less, in long ones after every quarter more calls") {
    for (const std::size_t count : {512, 16384})
      for (const Dtype type : {Dtype::f32, Dtype::f16}) {
        CallSequence sequence(3, [](std::string_view) {});
        std::uint64_t sent = 0;
        std::vector<std::uint64_t> searched, quarters;
        for (std::uint64_t call = 1; call <= 1500; ++call) {
          sequence.begin(count, type, {sketch_of(normal(count, call)), place(0), place(0)});
          sequence.end(CallSequence::Outcome::tensor, [&](std::span<const std::int64_t> numbers) {
            if (searched.empty() || searched.back() != call) searched.push_back(call);
            if (call > 500) sent += numbers.size_bytes();
          });
        }
        for (std::uint64_t next = 3; next <= 1500; next += std::max<std::uint64_t>(1, next / 4))
          quarters.push_back(next);  // the first two have nothing to compare
        CHECK(sequence.count().ambiguous == 1);
        if (count > 512) CHECK(searched == quarters);
        else if (type == Dtype::f32) CHECK(sent <= 1000 * count * size_of(type) / 10);
      }
  }

  // As where a training begins: calls are like the one before and opposed to one some steps earlier.
  TEST_CASE("a gradient that turns is known from its seventh call on, by its direction alone") {
    World world(4);
    Vector scale = octaves(kCount, 50);
    for (float& x : scale) x = std::sqrt(x);
    std::vector<Vector> from, to;
    for (std::uint64_t r = 0; r < 4; ++r) {
      from.push_back(normal(kCount, 2 * r));
      to.push_back(normal(kCount, 2 * r + 1));
    }
    std::size_t unknown = 0;
    std::mt19937 bits(1);
    float angle = 0;
    for (int step = 0; step < 40; ++step) {
      std::vector<World::One> ranks;
      angle += 0.3f + 0.6f * static_cast<float>(bits()) / 4294967296.0f;
      for (std::uint64_t r = 0; r < 4; ++r) {
        Vector v = sum(normal(kCount, 100 + r + 4 * static_cast<std::uint64_t>(step), 0.5f), from[r], std::cos(angle));
        ranks.push_back({product(scale, sum(v, to[r], std::sin(angle))), place(0)});
      }
      const std::string k = world.call(ranks);
      CHECK(k != "foreign");
      unknown += k.empty();
    }
    CHECK(unknown <= 6);
    CHECK(world.rank(0).count().withdrawn == 0);
  }

  TEST_CASE(
      "two tensors of which a coin decides who comes are not taken for one, unless it falls on one side five times, and then not for long") {
    std::size_t wrong = 0, calls = 0;
    const std::uint64_t seeds = effort(40, 10, 2, 2);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      World world(2);
      std::vector<Gradient> g;
      for (std::uint64_t t = 0; t < 2; ++t) g.emplace_back(10 * seed + t + 1, 1.0f, 0.5f);
      std::mt19937 bits(static_cast<std::uint32_t>(seed));
      std::map<std::string, std::size_t> last;
      for (int call = 0; call < 60; ++call, ++calls) {
        const std::size_t t = bits() % 2;
        const std::string k = world.call(g[t].next(), place(0));
        if (k.empty() || k == "foreign") continue;
        if (const auto at = last.find(k); at != last.end()) wrong += at->second != t;
        last[k] = t;
      }
    }
    CHECK(wrong <= calls / 200);
  }

  // Signs of every step's own; what lasts is how large the elements are beside each other. `common`: as much of that
  // the tensors have in common, as layers of the same input do.
  TEST_CASE("gradients that are all noise are known by their magnitudes, and never taken for each other") {
    Turns turns(5, 11, 11);
    for (const float common : {0.0f, 0.4f, 0.7f})
      for (const bool random_order : {false, true})
        for (const std::size_t tensors : {1, 2, 3, 8}) {
          if (!turns.next()) continue;
          CAPTURE(common);
          CAPTURE(random_order);
          CAPTURE(tensors);
          World world(2);
          std::vector<Vector> scale;
          const Vector shared = octaves(kCount, 100);
          for (std::size_t t = 0; t < tensors; ++t) {
            scale.push_back(octaves(kCount, 200 + t));
            for (std::size_t i = 0; i < kCount; ++i)
              scale[t][i] = std::pow(shared[i], common) * std::pow(scale[t][i], 1 - common);
          }
          std::mt19937_64 bits(tensors);
          std::vector<std::size_t> order(tensors);
          std::iota(order.begin(), order.end(), 0u);
          std::map<std::string, std::size_t> tensor_of;
          std::size_t known = 0, calls = 0, wrong = 0, foreign = 0;
          for (std::size_t step = 0; step < 60 + 240 / tensors; ++step) {
            if (random_order) std::shuffle(order.begin(), order.end(), bits);
            for (const std::size_t t : order) {
              std::vector<World::One> ranks;
              for (std::uint64_t r = 0; r < 2; ++r)
                ranks.push_back({product(scale[t], normal(kCount, ++calls)), place(0)});
              const std::string k = world.call(ranks);
              foreign += k == "foreign";
              if (k.empty() || k == "foreign") continue;
              ++known;
              wrong += tensor_of.emplace(k, t).first->second != t;
            }
          }
          calls /= 2;
          CAPTURE(known);
          CAPTURE(calls);
          CAPTURE(foreign);
          // Most of it in common and in any order: nobody can tell.
          if (!random_order || common < 0.5f) CHECK(wrong == 0);
          if (!random_order || tensors == 1) CHECK(known >= calls / 3);
          if (!random_order) CHECK(foreign <= calls / 100);
        }
  }

  // The scenarios of which error feedback once made garbage: tensors of equal counts.
  TEST_CASE("equal tensors never share a key, in buffers of their own, in one staging buffer, and in two in turns") {
    Turns turns(4, 11, 11);
    for (const int buffers : {0, 1, 2})
      for (const std::size_t tensors : {2, 3, 4, 12, 40})
        for (const float decay : {1.0f, 0.75f, 0.1f}) {
          if (!turns.next()) continue;
          CAPTURE(buffers);
          CAPTURE(tensors);
          CAPTURE(decay);
          World world(2);
          std::vector<Gradient> g;
          for (std::size_t t = 0; t < tensors; ++t)
            g.emplace_back(t + 1, std::pow(decay, static_cast<float>(t % 6)), 0.5f);
          std::map<std::string, std::size_t> tensor_of;
          std::size_t known = 0, calls = 0;
          for (std::size_t step = 0; step < 6 + 60 / tensors; ++step)
            for (std::size_t t = 0; t < tensors; ++t, ++calls) {
              const std::string k =
                  world.call(g[t].next(), place(buffers == 0 ? t : t % static_cast<std::size_t>(buffers)));
              if (k.empty() || k == "foreign") continue;
              ++known;
              CHECK(tensor_of.emplace(k, t).first->second == t);
            }
          CHECK(known >= calls / 4);
          CHECK(world.rank(0).count().tensors % tensors == 0);
        }
  }

  TEST_CASE("of calls that nobody looks at the tensors' turns pass all the same, and only of tensors that are known") {
    World world(2);
    std::vector<Gradient> g;
    for (std::size_t t = 0; t < 3; ++t) g.emplace_back(t + 1, 1.0f, 0.5f);
    const std::uint64_t count = g[0].next().size();
    const auto skip = [&] {
      const bool skipped = world.rank(0).skip(count, Dtype::f32);
      CHECK(world.rank(1).skip(count, Dtype::f32) == skipped);
      return skipped;
    };
    CHECK_FALSE(skip());  // nothing has been seen
    std::map<std::string, std::size_t> tensor_of;
    std::size_t turn = 0, known = 0;
    const auto call = [&] {
      const std::size_t t = turn++ % 3;
      const std::string k = world.call(g[t].next(), place(0));
      if (k.empty() || k == "foreign") return;
      ++known;
      CHECK(tensor_of.emplace(k, t).first->second == t);
    };
    call();
    CHECK_FALSE(skip());
    for (int n = 0; n < 59; ++n) call();
    REQUIRE(tensor_of.size() == 3);
    for (const int skipped : {1, 7, 100}) {
      for (int n = 0; n < skipped; ++n, ++turn) {
        g[turn % 3].next();
        CHECK(skip());
      }
      const std::size_t before = known;
      for (int n = 0; n < 6; ++n) call();
      CHECK(known == before + 6);  // none is foreign, and each has its own key
    }
    CHECK(world.rank(0).count().withdrawn == 0);
  }

  TEST_CASE("a period stays known where most calls pass unseen, in whole turns of its tensors or not") {
    for (const std::size_t tensors : {2, 3, 4}) {
      CAPTURE(tensors);
      World world(1);
      std::vector<Vector> common;
      for (std::size_t t = 0; t < tensors; ++t) common.push_back(normal(kCount, 100 + t));
      std::map<std::string, std::size_t> tensor_of;
      std::size_t turn = 0;
      const auto call = [&] {
        const std::size_t t = turn % tensors;
        const std::string key = world.call(sum(common[t], normal(kCount, 1000 + turn), 0.8f), place(turn));
        ++turn;
        if (!key.empty()) CHECK(tensor_of.emplace(key, t).first->second == t);
        return !key.empty();
      };
      while (tensor_of.size() < tensors && turn < 100) call();
      REQUIRE(tensor_of.size() == tensors);
      for (int round = 0; round < 40; ++round) {
        for (int n = 0; n < 9; ++n) CHECK(call());
        bool skipped = true;
        for (int n = 0; n < 4087; ++n, ++turn) skipped = world.rank(0).skip(kCount, Dtype::f32) && skipped;
        REQUIRE(skipped);
      }
      CHECK(world.rank(0).count().withdrawn == 0);
    }
  }

  TEST_CASE("equal tensors of constant values") {
    for (const float ratio : {100.0f, 2.0f, 1.1f}) {
      World world(2);
      std::map<std::string, int> tensor_of;
      for (int step = 0; step < 50; ++step)
        for (int t = 0; t < 2; ++t) {
          Vector v(kCount, (t ? 1 / ratio : 1.0f) * 0.75f);
          for (std::size_t i = 0; i < kCount; i += 3) v[i] = -v[i];
          const std::string k = world.call(v, place(0));
          if (!k.empty()) CHECK(tensor_of.emplace(k, t).first->second == t);
        }
      CHECK(tensor_of.size() == 2);
    }
  }

  TEST_CASE("in random order nothing is known that is not true") {
    // Anew in every call, or all of them in every step.
    Turns turns(5, 17, 17);
    for (const bool steps : {false, true})
      for (const float noise : {0.0f, 0.3f, 1.0f})
        for (const std::size_t tensors : {2, 5, 8, 16}) {
          if (!turns.next()) continue;
          CAPTURE(steps);
          CAPTURE(noise);
          CAPTURE(tensors);
          World world(2);
          std::vector<Gradient> g;
          for (std::size_t t = 0; t < tensors; ++t) g.emplace_back(t + 1, 1.0f, noise);
          std::vector<std::size_t> order(tensors);
          std::iota(order.begin(), order.end(), 0);
          std::mt19937 bits(7);
          std::size_t wrong = 0;
          std::map<std::string, std::size_t> last;
          for (std::size_t call = 0; call < 400; ++call) {
            if (call % tensors == 0) std::shuffle(order.begin(), order.end(), bits);
            const std::size_t t = steps ? order[call % tensors] : bits() % tensors;
            const std::string k = world.call(g[t].next(), place(0));
            if (k.empty() || k == "foreign") continue;
            if (const auto at = last.find(k); at != last.end() && at->second != t) ++wrong;
            last[k] = t;
          }
          CHECK(wrong == 0);
        }
  }

  TEST_CASE("a like layer among others and another count between them") {
    Turns turns(1, 2, 2);
    for (const std::size_t like : {12, 40}) {
      if (!turns.next()) continue;
      World world(2);
      std::vector<Gradient> g;
      for (std::size_t t = 0; t <= like; ++t) g.emplace_back(t + 1, 1.0f, 0.5f);
      std::map<std::string, std::size_t> tensor_of;
      for (int step = 0; step < 12; ++step)
        for (std::size_t t = 0; t <= like; ++t) {
          Vector v = g[t].next();
          if (t == like) v.resize(kCount / 2);
          const std::string k = world.call(v, place(0));
          if (!k.empty()) CHECK(tensor_of.emplace(k, t).first->second == t);
        }
      CHECK(tensor_of.size() == like + 1);
      CHECK(world.rank(0).count().withdrawn == 0);
    }
  }

  TEST_CASE("foreign calls now and then cost themselves alone, for ever") {
    for (const int kind :
         {0, 1, 2}) {  // another count; the same in another buffer; the same, larger, in the same buffer
      World world(2);
      Gradient g(1, 1, 0.5f);
      std::string key;
      int unknown = 0;
      const int rounds = effort(12, 3, 1, 1);
      for (int round = 0; round < rounds; ++round) {
        for (int step = 0; step < 100; ++step) {
          const std::string k = world.call(g.next(), place(0));
          unknown += k.empty();
          if (!k.empty() && key.empty()) key = k;
          if (!k.empty()) CHECK(k == key);
        }
        Vector other = normal(kCount, static_cast<std::uint64_t>(500 + round), kind == 2 ? 1000.0f : 1.0f);
        if (kind == 0) other.resize(kCount - 1);
        const std::string k = world.call(other, place(kind == 1 ? 1 : 0));
        CHECK(k == (kind == 0 ? "" : "foreign"));
      }
      CHECK(unknown == 5);
      CHECK(world.rank(0).count().withdrawn == 0);
    }
  }

  TEST_CASE("a missing call, or one too many, makes a few foreign and no key wrong") {
    World world(2);
    std::vector<Gradient> g;
    for (std::size_t t = 0; t < 5; ++t) g.emplace_back(t + 1, 1.0f, 0.2f);
    std::map<std::string, std::size_t> tensor_of;
    std::size_t known = 0, calls = 0;
    for (int step = 0; step < 60; ++step)
      for (std::size_t t = 0; t < 5; ++t) {
        if (step == 30 && t == 2) continue;
        ++calls;
        const std::string k = world.call(g[t].next(), place(t));
        if (k.empty() || k == "foreign") continue;
        ++known;
        CHECK(tensor_of.emplace(k, t).first->second == t);
      }
    CHECK(known >= calls - 15 - 15 - 40);
  }

  TEST_CASE("a tensor's own call that looks like another's, or a missing one, costs two calls and no residual") {
    for (const bool missing : {false, true}) {
      World world(2);
      std::vector<Gradient> g;
      for (std::size_t t = 0; t < 5; ++t) g.emplace_back(t + 1, 1.0f, 0.2f);
      std::map<std::size_t, std::string> key_of;
      int foreign = 0;
      for (int step = 0; step < 60; ++step)
        for (std::size_t t = 0; t < 5; ++t) {
          const bool odd = step % 10 == 5 && step > 20 && t == 2;
          if (odd && missing) continue;
          Vector values = odd ? normal(kCount, static_cast<std::uint64_t>(9000 + step)) : g[t].next();
          if (odd)
            for (float& x : values) x *= 100;
          const std::string key = world.call(values, place(t));
          if (step < 20) continue;
          if (key == "foreign") ++foreign;
          else CHECK(key_of.emplace(t, key).first->second == key);
        }
      for (const auto& [t, key] : key_of) CHECK_FALSE(key.empty());
      CAPTURE(missing);
      CHECK((foreign >= 4 && foreign <= 8));
      CHECK(world.rank(0).count().withdrawn == 0);
    }
  }

  TEST_CASE("outliers, NaN and a change of size in values that are alike otherwise are the tensor's own calls") {
    World world(2);
    std::vector<Gradient> g;
    for (std::size_t t = 0; t < 5; ++t) g.emplace_back(t + 1, 1.0f, 0.3f);
    std::map<std::string, std::size_t> tensor_of;
    for (int step = 0; step < 60; ++step)
      for (std::size_t t = 0; t < 5; ++t) {
        Vector v = g[t].next();
        if (step == 30 && t == 2) v[77] = 1e6f;
        if (step == 35 && t == 3) v[77] = NAN;
        if (step == 40 && t == 4) v[77] = INFINITY;
        if (step >= 50)
          for (float& x : v) x *= 1000;  // a loss scale
        const std::string k = world.call(v, place(t));
        if (step < 20) continue;
        CHECK_FALSE(k.empty());
        CHECK(k != "foreign");
        CHECK(tensor_of.emplace(k, t).first->second == t);
      }
    CHECK(tensor_of.size() == 5);
    CHECK(world.rank(0).count().foreign == 0);
  }

  TEST_CASE("what changes for good is learnt anew") {
    World world(2);
    Gradient g(1, 1, 0.5f);
    for (int step = 0; step < 20; ++step) world.call(g.next(), place(0));
    Gradient other(2, 1000, 0.5f);
    int foreign = 0, known = 0;
    for (int step = 0; step < 60; ++step) {
      const std::string k = world.call(other.next(), place(0));
      foreign += k == "foreign";
      known += !k.empty() && k != "foreign";
    }
    CHECK(foreign == 4);
    CHECK(known >= 30);
    CHECK(world.rank(0).count().withdrawn == 1);
    CHECK(world.forgotten[0] == std::set<std::string>{"#0.0."});
    CHECK(world.forgotten[0] == world.forgotten[1]);
  }

  // Of all kinds count() says how many there are, and looks at each of them.
  TEST_CASE("each call says of its own kind that it shows no tensor, or is not what it was taken for") {
    CallSequence sequence(3, [](std::string_view) {});
    const auto call = [&](const Vector& v) {
      const CallSequence::Call c = sequence.begin(v.size(), Dtype::f32, {sketch_of(v), place(0), place(0)});
      sequence.end(c.foreign ? CallSequence::Outcome::foreign : CallSequence::Outcome::tensor,
                   [](std::span<std::int64_t>) {});
      return c;
    };
    auto noise = [&, seed = std::uint64_t{0}]() mutable { return call(normal(kCount + 1, 5000 + ++seed)); };
    for (std::uint64_t n = 0; n < CallSequence::kManyCalls; ++n) CHECK_FALSE(noise().ambiguous);
    REQUIRE(sequence.count().ambiguous == 1);
    CHECK(noise().ambiguous);
    CHECK_FALSE(noise().withdrawn);
    Gradient one(1, 1, 0.5f), other(2, 1000, 0.5f);
    for (int step = 0; step < 20; ++step) CHECK_FALSE(call(one.next()).ambiguous);
    while (sequence.count().withdrawn == 0) CHECK_FALSE(call(other.next()).withdrawn);
    CHECK(call(other.next()).withdrawn);
    CHECK_FALSE(noise().withdrawn);
    CHECK_FALSE(call(normal(kCount + 2, 1)).ambiguous);
    for (int step = 0; step < 40; ++step) call(other.next());
    const CallSequence::Call again = call(other.next());
    CHECK(again.layout->known());
    CHECK_FALSE(again.withdrawn);
  }

  // Their values alone would take them for one now and then.
  TEST_CASE("tensors that hardly differ are told apart by their buffers") {
    for (const std::size_t tensors : {2, 3})
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        CAPTURE(tensors);
        CAPTURE(seed);
        World world(1);
        const Vector common = normal(kCount, 1000 * seed + 1);
        std::vector<Vector> direction;
        for (std::size_t t = 0; t < tensors; ++t)
          direction.push_back(sum(common, normal(kCount, 1000 * seed + 10 + t), 0.14f));
        std::map<std::string, std::size_t> tensor_of;
        std::uint64_t calls = 0;
        for (std::size_t step = 0; step < 240 / tensors; ++step)
          for (std::size_t t = 0; t < tensors; ++t) {
            const Vector noise = normal(kCount, 100000 * (seed + 1) + ++calls);
            const std::string k = world.call(sum(direction[t], noise), place(t));
            if (!k.empty() && k != "foreign") CHECK(tensor_of.emplace(k, t).first->second == t);
          }
        CHECK(tensor_of.size() == tensors);
      }
  }

  TEST_CASE("one gradient in buffers that take turns is known later, and then for good") {
    for (const std::size_t buffers : {2, 3}) {
      CAPTURE(buffers);
      World world(2);
      Gradient g(1, 1, 0.5f);
      std::set<std::string> keys;
      std::size_t unknown = 0;
      for (std::size_t step = 0; step < 60; ++step) {
        const std::string k = world.call(g.next(), place(step % buffers));
        unknown += k.empty();
        if (!k.empty()) keys.insert(k);
      }
      CHECK(unknown <= 12);  // from so many on there are seven pairs of either buffer's
      CHECK(keys.size() == buffers);
      CHECK(world.rank(0).count().withdrawn == 0);
      CHECK(world.rank(0).count().foreign == 0);
    }
  }

  TEST_CASE("one call from another buffer takes nothing from a gradient that is known") {
    for (int elsewhere = 0; elsewhere < 80; ++elsewhere) {
      CAPTURE(elsewhere);
      World world(2);
      Gradient g(1, 1, 0.5f);
      std::set<std::string> keys;
      int unknown = 0;
      for (int step = 0; step < 80; ++step) {
        const std::string k = world.call(g.next(), place(step == elsewhere));
        unknown += k.empty();
        if (!k.empty()) keys.insert(k);
      }
      CHECK(unknown <= 12);
      CHECK(keys.size() == 1);
      CHECK(world.rank(0).count().withdrawn == 0);
      CHECK(world.rank(0).count().foreign == 0);
    }
  }

  TEST_CASE("a call in which ranks differed leaves no trace") {
    World world(2);
    Gradient g(1, 1, 0.5f);
    for (int step = 0; step < 20; ++step) world.call(g.next(), place(0));
    const auto none = [](std::span<std::int64_t>) { FAIL("not in step"); };
    const Vector v = normal(kCount, 9), w = normal(kCount + 1, 9);
    world.rank(0).begin(v.size(), Dtype::f32, {sketch_of(v), place(0), place(0)});
    world.rank(1).begin(w.size(), Dtype::f32, {sketch_of(w), place(1), place(1)});
    for (std::size_t r = 0; r < 2; ++r) world.rank(r).end(CallSequence::Outcome::failed, none);
    for (int step = 0; step < 20; ++step) CHECK_FALSE(world.call(g.next(), place(0)).empty());
    for (int step = 0; step < 20; ++step) world.call(normal(kCount + 1, 9), place(0));
    CHECK_FALSE(
        world.call(normal(kCount + 1, 9), place(0)).empty());  // equal keys on both ranks, or call() would have failed
  }

  // Where two series take turns, neither of them is adjacent; magnitudes that are alike in part then need more pairs.
  TEST_CASE("after a call in which ranks differed they ask one another in the same calls as before") {
    for (const bool later : {false, true})
      for (const float deviation : {0.5f, 0.55f, 0.6f}) {
        World world(2);
        Vector scale = normal(kCount, 3, deviation);
        for (float& x : scale) x = std::exp2(x);
        const auto step = [&](std::size_t n) {
          world.call(normal(kCount + 1, 101 + 2 * n), place(n));
          world.call(product(scale, normal(kCount, 100 + 2 * n)), place(n));
        };
        if (later) step(0);
        const Vector first = normal(kCount, 1), other = normal(2 * kCount, 2);
        world.rank(0).begin(first.size(), Dtype::f32, {sketch_of(first), place(0), place(0)});
        world.rank(1).begin(other.size(), Dtype::f32, {sketch_of(other), place(0), place(0)});
        for (std::size_t r = 0; r < 2; ++r)
          world.rank(r).end(CallSequence::Outcome::failed, [](std::span<std::int64_t>) { FAIL("not in step"); });
        for (std::size_t n = 1; n < 100; ++n) step(n);
      }
  }

  TEST_CASE("where the values of one rank prove the tensors, all ranks know them, and whose turn it is") {
    World world(2);
    std::vector<Gradient> g;
    for (std::size_t t = 0; t < 5; ++t) g.emplace_back(t + 1, 1.0f, 0.2f);
    std::map<std::size_t, std::string> key_of;
    std::uint64_t noise = 1000;
    int foreign = 0;
    for (int step = 0; step < 40; ++step)
      for (std::size_t t = 0; t < 5; ++t) {
        if (step == 30 && t == 2) continue;
        const std::string key = world.call({{g[t].next(), place(0)}, {normal(kCount, ++noise), place(0)}});
        if (step < 20) continue;
        if (key == "foreign") ++foreign;
        else CHECK(key_of.emplace(t, key).first->second == key);
      }
    for (const auto& [t, key] : key_of) CHECK_FALSE(key.empty());
    CHECK(key_of.size() == 5);
    CHECK(foreign == 2);
  }

  TEST_CASE("types are told apart, and more periods are asked for where CRIMP_PERIODS says so") {
    World world(1, 20);
    const Vector v = normal(kCount, 1);
    int unknown = 0;
    for (int i = 0; i < 40; ++i) unknown += world.call(v, place(0)).empty();
    CHECK(unknown >= 20);
    CHECK(unknown <= 24);  // evidence is gathered at every fourth part of the calls
    CHECK(world.call(v, place(0), Dtype::f64) == "");
  }

  TEST_CASE("however many periods are asked for, tensors become known where all calls that are kept bring them again") {
    for (const std::size_t tensors : {1, 4, 40}) {
      CAPTURE(tensors);
      World world(1, 1000);
      std::vector<Vector> values;
      for (std::size_t t = 0; t < tensors; ++t) values.push_back(normal(512, t + 1));
      std::string key;
      int calls = 0;
      for (; key.empty() && calls < 9000; ++calls) {
        const std::size_t t = static_cast<std::size_t>(calls) % tensors;
        key = world.call(values[t], place(t));
      }
      CHECK(world.rank(0).count().tensors == tensors);
      CHECK(calls > (tensors == 1 ? 1000 : 3072));
    }
  }

  TEST_CASE("what comes again and is no gradient is of no series: counts, indices, votes, sums of squares") {
    const auto whole = [](Vector v, float scale) {
      for (float& x : v) x = std::trunc(scale * x);
      return v;
    };
    // Beside a gradient of the same length, from the first step on or in evaluations now and then.
    const int steps = effort(400, 400, 110, 110);
    for (const int every : {1, 7, 50}) {
      World world(2);
      Gradient g(3, 0.01f, 2);
      const Vector diagonal = normal(kCount, 1), common = normal(kCount, 2);
      int known = 0, others = 0;
      for (int step = 0; step < steps; ++step) {
        const Vector noise = normal(kCount, static_cast<std::uint64_t>(1000 + step));
        if (step % every == every - 1)
          for (const Vector& kind : {whole(squares_of(sum(diagonal, noise, 0.1f)), 100), whole(common, 1e5f),
                                     whole(sum(common, noise, 0.2f), 3), squares_of(sum(common, noise, 0.3f)),
                                     whole(squares_of(noise), 10), squares_of(noise)}) {
            CHECK(sketch_of(kind).usable());
            CHECK(!sketch_of(kind).gradient());
            CHECK(world.call(kind, place(every % 2)) == "apart");
          }
        const std::string k = world.call(g.next(), place(0));
        known += !k.empty() && k != "foreign", others += k == "foreign";
      }
      CHECK(known > steps - 50);
      CHECK(others == 0);
      CHECK(world.rank(0).count().tensors == 1);
      CHECK(world.rank(0).count().foreign == 0);
      CHECK(world.rank(0).count().withdrawn == 0);
    }
  }

  TEST_CASE("a loss and counts at the ends of a gradient are no part of the tensor") {
    using Ends = std::pair<std::uint64_t, std::uint64_t>;
    const auto ends_of = [](auto&& change, std::size_t count = 40000) {
      World world(2);
      const Vector direction = normal(count, 1, 0.01f);
      for (int step = 0; step < 30; ++step) {
        Vector v = sum(direction, normal(count, static_cast<std::uint64_t>(2 + step), 0.01f));
        change(v, step);
        world.call(v, place(0));
      }
      return world.ends;
    };
    CHECK(ends_of([](Vector&, int) {}) == Ends(0, 0));
    CHECK(ends_of([](Vector& v, int) { std::fill_n(v.begin(), 200, 0.0f), std::fill_n(v.rbegin(), 200, 0.0f); }) ==
          Ends(0, 0));
    CHECK(ends_of([](Vector& v, int) { v.back() = 2000; }) == Ends(0, 16));
    CHECK(ends_of([](Vector& v, int step) { v.back() = 2.31f - 0.01f * static_cast<float>(step); }) == Ends(0, 16));
    CHECK(ends_of([](Vector& v, int) { v[v.size() - 16] = 1; }) == Ends(0, 16));
    CHECK(ends_of([](Vector& v, int) { v[v.size() - 17] = 1; }) == Ends(0, 0));  // as one of its own
    CHECK(ends_of([](Vector& v, int step) { v.front() = 0.7f, v[1] = static_cast<float>(step + 100); }) == Ends(16, 0));
    CHECK(ends_of([](Vector& v, int step) { v.back() = step % 3 ? 2000 : 0; }) == Ends(0, 16));  // in half of the calls
    CHECK(ends_of([](Vector& v, int step) { v.back() = step % 20 ? 0.01f : 2000; }) == Ends(0, 0));
    // Where they may not be summed exactly they are the tensor's.
    World world(1);
    const Vector direction = normal(kCount, 1, 0.01f);
    for (std::uint64_t step = 0; step < 30; ++step) {
      Vector v = sum(direction, normal(kCount, 2 + step, 0.01f));
      v.front() = v.back() = 2000;
      world.call(v, place(0));
      if (step == 29) {
        CHECK(world.ends == Ends(16, 16));
        const auto call = world.rank(0).begin(kCount, Dtype::f32, {sketch_of(v), place(0), place(0)}, false);
        REQUIRE(call.layout->segments.size() == 1);
        CHECK(call.layout->segments[0].count == kCount);
        CHECK_FALSE(call.layout->segments[0].key.empty());
      }
    }
    // More of them, as the counts of k-means behind its sums, are no gradient's.
    for (const bool front : {false, true})
      for (const std::size_t numbers : {15, 16, 17, 30, 300}) {
        Vector v = normal(20000, 1);
        for (std::size_t i = 0; i < numbers; ++i) v[front ? i : v.size() - 1 - i] = static_cast<float>(7 * i % 90);
        CHECK(sketch_of(v).gradient() == (numbers <= 16));
        CHECK(sketch_of(v).head() == front);
        CHECK(sketch_of(v).tail() == !front);
      }
  }

  TEST_CASE("what is taken for no gradient while no rank is asked proves nothing, nor do the calls before it") {
    // Averages of parameters are like each other from the first on, and are told for what they are at the fifth.
    for (const bool none : {false, true}) {
      CAPTURE(none);
      World world(2);
      Gradient g(5, 0.01f, 0.3f);
      for (int i = 0; i < 4; ++i) CHECK(world.call(g.next(), place(0)).empty());
      world.none = none;
      CHECK(world.call(g.next(), place(0)).empty());
      CHECK(world.call(g.next(), place(0)).empty() == none);
      world.none = false;
      for (int i = 0; i < 2; ++i) CHECK(world.call(g.next(), place(0)).empty() == none);
      int known = 0;
      for (int i = 0; i < 60; ++i) known += world.call(g.next(), place(0)).starts_with('#');
      CHECK(known >= 40);
    }
  }

  TEST_CASE("what begins with one sign, or on one rank without a gradient, is known once it is more") {
    World late(1);
    Gradient g(5, 0.01f, 0.3f);
    for (int i = 0; i < 30; ++i) {
      Vector v = g.next();
      for (float& x : v) x = std::abs(x);
      CHECK(late.call(v, place(0)) == "apart");
    }
    int unknown = 0;
    for (int i = 0; i < 60; ++i) unknown += late.call(g.next(), place(0)).empty();
    CHECK(unknown <= 7);

    // Behind rectified features a layer's gradient is of one sign where all errors are: its own, where it was nearly so
    // before.
    const auto leaning = [](int step, float least) {
      Vector v = octaves(kCount, 8);
      const Vector noise = normal(kCount, static_cast<std::uint64_t>(100 + step), 0.3f);
      for (std::size_t i = 0; i < kCount; ++i) v[i] *= std::max(least, 1 + noise[i] * (i % 3 ? 1 : 4));
      return v;
    };
    World layer(1);
    int own = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string k = layer.call(leaning(i, i % 4 == 3 ? 0.01f : -9), place(0));
      own += i >= 30 && k.starts_with('#');
    }
    CHECK(own == 30);
    World even(1);  // squares are no gradient of a tensor with both signs
    for (int i = 0; i < 30; ++i) even.call(g.next(), place(0));
    CHECK(even.call(g.next(), place(0)).starts_with('#'));
    CHECK(even.call(squares_of(g.next()), place(0)) == "apart");

    World world(2);
    const Vector counts(kCount, 3.0f);
    for (int i = 0; i < 20; ++i) CHECK(world.call({{counts, place(0)}, {g.next(), place(0)}}) == "apart");
    for (int i = 0; i < 20; ++i) CHECK(world.call({{Vector(kCount), place(0)}, {g.next(), place(0)}}) != "apart");
    CHECK(sketch_of(Vector(kCount, 0.75f)).gradient());  // whoever tries a sum
    CHECK(!sketch_of(Vector(kCount, 2.0f)).gradient());
    CHECK(!Sketch().whole());
    CHECK(!sketch_of(normal(kCount, 1, 1e25f)).whole());  // a float32 of that size has no fraction
    CHECK(sketch_of(normal(kCount, 1, 1e25f)).gradient());
    Vector few(kCount), many(kCount, 9e6f);
    std::fill_n(few.begin(), 32, 3.0f);  // four of which are looked at
    CHECK(sketch_of(few).whole());
    std::fill_n(few.begin(), 32, 9e6f);
    CHECK(!sketch_of(few).whole());
    std::fill_n(many.begin(), 32, 7.0f);
    CHECK(sketch_of(many).whole());
    // So are few numbers of 16 bits, where these have no fraction.
    Vector halves(kCount);
    std::fill_n(halves.begin(), 64, 640.0f);
    CHECK(sketch_of(halves).whole());
    CHECK(!sketch_of(halves, Sample::kClusters, Dtype::bf16).whole());
    CHECK(!sketch_of(halves, Sample::kClusters, Dtype::f16).whole());  // eight values with a bit each
    std::fill_n(halves.begin(), 64, 3.0f);
    CHECK(sketch_of(halves, Sample::kClusters, Dtype::bf16).whole());
    CHECK(!sketch_of(Vector(kCount, 0.0f)).whole());
    CHECK(!sketch_of(Vector(kCount, INFINITY)).whole());
  }

  TEST_CASE("weights in the buffer of their gradient are foreign") {
    World world(2);
    Gradient g(1, 0.02f, 2.2f);  // so noisy that no likeness alone would say it
    std::string key;
    for (int step = 0; step < 100; ++step) key = world.call(g.next(), place(0));
    CHECK((!key.empty() && key != "foreign"));
    Vector weights = normal(kCount, 77);
    for (float& x : weights) x *= 0.3f;
    CHECK(world.call(weights, place(0)) == "foreign");
    CHECK(world.call(g.next(), place(0)) == key);
  }

  TEST_CASE("where ends alone matter, what has none is given up, and what is not known before long") {
    World world(1);
    CallSequence& rank = world.rank(0);
    rank.set_only_ends(true);
    Gradient with(1, 1, 0.2f), without(2, 1, 0.2f);
    bool known = false;
    for (std::size_t step = 0; step < 2 * CallSequence::kBriefly; ++step) {
      Vector ended = with.next();
      ended.resize(kCount - 64);
      ended.back() = 1000;
      known = !world.call(ended, place(0)).empty();
      if (!rank.given_up(kCount, Dtype::f32)) world.call(without.next(), place(1));
      if (!rank.given_up(kCount / 2, Dtype::f32)) world.call(normal(kCount / 2, 100 + step), place(2));
      if (step == 20) CHECK(rank.given_up(kCount, Dtype::f32));
      CHECK(rank.given_up(kCount / 2, Dtype::f32) == (step + 1 >= CallSequence::kBriefly));
    }
    CHECK(known);
    CHECK(world.ends.second == Sample::kEnd);
    CHECK_FALSE(rank.given_up(kCount - 64, Dtype::f32));
  }

  TEST_CASE("a gradient in many tensors of many sizes, each in a call of its own, stays known") {
    World world(1);
    constexpr std::size_t kTensors = 100;
    const Vector noise = normal(1 << 16, 1);
    std::vector<std::string> keys(kTensors);
    for (std::size_t step = 0; step < 160; ++step)
      for (std::size_t t = 0; t < kTensors; ++t) {
        Vector values = normal(600 + t, 2 + t);
        const std::size_t at = (7919 * step + 104729 * t) % (noise.size() - values.size());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.5f * noise[at + i];
        std::string key = world.call(values, place(0));
        key.resize(key.rfind('.') + 1);  // a period of two has two keys
        if (step == 30) CHECK_FALSE((keys[t] = key).empty());
        if (step > 30 && key != keys[t]) FAIL_CHECK("tensor " << t << " in step " << step << ": '" << key << "'");
      }
  }

  TEST_CASE("of very many sizes all become known, and none is forgotten") {
    World world(1);
    constexpr std::size_t kTensors = 700, kSteps = 20;
    const Vector noise = normal(1 << 16, 1);
    std::size_t known = 0;
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t t = 0; t < kTensors; ++t) {
        Vector values = normal(600 + t, 2 + t);
        const std::size_t at = (7919 * step + 104729 * t) % (noise.size() - values.size());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.5f * noise[at + i];
        const std::string key = world.call(values, place(0));
        known += step >= kSteps / 2 && !key.empty() && key != "foreign";
      }
    CHECK(known >= kSteps / 2 * kTensors * 95 / 100);
    CHECK(world.rank(0).count().forgotten == 0);
  }

  TEST_CASE("of far too many sizes those that come no more are forgotten, and the one that comes is not") {
    World world(1);
    Gradient g(1, 1, 0.5f);
    std::string key;
    std::size_t other = 0;
    for (std::size_t gone = 0; gone < 3000; ++gone)
      for (std::size_t step = 0; step < 12; ++step) {
        Vector values = normal(256 + gone, 2 + gone);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1 + 0.01f * static_cast<float>(i % (step + 2));
        world.call(values, place(0));
        if (step % 4) continue;
        const std::string now = world.call(g.next(), place(0));
        if (gone == 10) key = now;
        other += gone > 10 && now != key;
      }
    CHECK_FALSE(key.empty());
    CHECK(other == 0);
    CHECK(world.rank(0).count().forgotten > 100);
  }

  TEST_CASE("kinds of calls that never come again are forgotten") {
    World world(1);
    Gradient g(1, 1, 0.5f);
    for (std::size_t i = 0; i < 2 * CallSequence::kMostSketches; ++i) {
      Vector once(1000 + i, 0.75f);
      once[i % 1000] = -once[i % 1000];
      for (std::size_t at = 0; at < once.size(); at += 2) once[at] = -once[at];
      world.call(once, place(0));
      if (i % 100 == 0) world.call(g.next(), place(0));
    }
    CHECK_FALSE(world.call(g.next(), place(0)).empty());
  }
}
