#include "schedule/past_sums.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "support/effort.hpp"

using namespace crimp;

namespace {

using Vector = std::vector<float>;
using Whose = PastSums::Whose;
constexpr std::size_t kCount = 20000;
const std::uint64_t kKey = PastSums::key_of(kCount, Dtype::f32);

Vector normal(std::uint64_t seed, float scale = 1) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> draw(0, scale);
  Vector v(kCount);
  for (float& x : v) x = draw(bits);
  return v;
}
Vector sum(const Vector& a, const Vector& b, float scale = 1) {
  Vector v(a.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = a[i] + scale * b[i];
  return v;
}
Sample sample(const Vector& v) {
  return Sample(v.size(), Sample::kClusters, [&](std::uint64_t first, std::uint64_t count, float* to) {
    std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(first), count, to);
  });
}

bool continues(PastSums& sums, std::uint64_t key, const Sample& values, Whose whose = Whose::several) {
  return sums.continue_in(key, values, whose) != PastSums::Answer::no;
}

// One rank's view of sums over `ranks`.
struct World {
  explicit World(int n) : ranks(n) {}
  int ranks;
  PastSums sums;
  // Whether rank 0's values go on.
  bool call(const std::vector<Vector>& values, Vector* result = nullptr, Whose whose = Whose::several) {
    Vector all(kCount);
    for (const Vector& v : values) all = sum(all, v);
    const bool goes_on = continues(sums, kKey, sample(values[0]), whose);
    if (sums.wanted(kKey, false))
      sums.keep(kKey, sample(values[0]), sample(all), whose == Whose::several ? PastSums::kOfAKind : PastSums::kOfOne);
    if (result) *result = all;
    return goes_on;
  }
  std::vector<Vector> each(const Vector& common, float noise, std::uint64_t seed) const {
    std::vector<Vector> all;
    for (int r = 0; r < ranks; ++r)
      all.push_back(sum(common, normal(seed * 100 + static_cast<std::uint64_t>(r)), noise));
    return all;
  }
};

}  // namespace

TEST_SUITE_BEGIN("past_sums");

// x' = sum / n + noise: beside the sum's direction lies noise^2 / (1 + noise^2) of it. Weights of ranks change nothing.
TEST_CASE("averages that ranks have changed go on, whatever they are divided by") {
  for (const float noise : {0.001f, 0.03f, 0.08f})
    for (const float divided : {1.0f, 4.0f, 0.01f}) {
      CAPTURE(noise);
      World world(4);
      Vector result = normal(1);
      for (std::uint64_t round = 0; round < 20; ++round) {
        std::vector<Vector> all = world.each(result, noise, round);
        for (Vector& v : all)
          for (float& x : v) x /= divided;
        CHECK(world.call(all, &result) == (round > 0));
        for (float& x : result) x *= divided / 4;
      }
    }
}

TEST_CASE("many tensors of one count, in turns") {
  World world(2);
  constexpr std::size_t kTensors = 100;
  std::vector<Vector> results(kTensors);
  for (std::uint64_t round = 0; round < 5; ++round)
    for (std::size_t t = 0; t < kTensors; ++t) {
      if (round == 0) results[t] = normal(900 + t, 2);
      for (float& x : results[t]) x /= 2;
      CHECK(world.call(world.each(results[t], 0.05f, 1000 * (round + 1) + t), &results[t]) == (round > 0));
    }
}

// Whoever keeps a sum that is no gradient's whenever it has one finds the next.
TEST_CASE("an average behind many gradients of its length") {
  PastSums sums;
  Vector average = normal(1);
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    for (std::uint64_t step = 0; step < 50; ++step) {
      const Vector gradient = normal(1000 + 100 * epoch + step);
      CHECK(!continues(sums, kKey, sample(gradient)));
      if (sums.wanted(kKey, false)) sums.keep(kKey, sample(gradient), sample(sum(gradient, normal(7 + step))));
    }
    const Vector mine = sum(average, normal(5000 + epoch), 0.05f);
    CHECK(continues(sums, kKey, sample(mine)) == (epoch > 0));
    average = sum(average, sum(mine, normal(6000 + epoch), 0.05f));  // another rank's is near
    sums.keep(kKey, sample(mine), sample(average));
  }
}

// Beside the sum's direction lies up to a half of the square, as in the first rounds of a training; b is about 1.
TEST_CASE("averages that move far go on from the fourth call on") {
  for (const int ranks : {2, 8})
    for (const float noise : {0.2f, 0.5f, 0.9f}) {
      CAPTURE(ranks);
      CAPTURE(noise);
      World world(ranks);
      Vector result = normal(1);
      for (std::uint64_t round = 0; round < 20; ++round) {
        double norm = 0;
        for (const float x : result) norm += static_cast<double>(x) * static_cast<double>(x) / kCount;
        const bool goes_on =
            world.call(world.each(result, noise * static_cast<float>(std::sqrt(norm)), round), &result);
        if (round > 3) CHECK(goes_on);
        for (float& x : result) x /= static_cast<float>(ranks);
      }
    }
}

// Ranks with data of their own pull into directions of their own, round after round, towards one place of all.
TEST_CASE("averages of ranks that pull apart go on") {
  World world(4);
  Vector result(kCount);
  const Vector place = normal(1);
  const std::vector<Vector> own = world.each(Vector(kCount), 0.5f, 77);
  for (std::uint64_t round = 0; round < 30; ++round) {
    std::vector<Vector> all;
    for (std::size_t r = 0; r < 4; ++r) {
      Vector v = sum(result, normal(1000 * round + r), 0.05f);
      for (std::size_t i = 0; i < kCount; ++i) v[i] += 0.2f * (place[i] + own[r][i] - result[i]);
      all.push_back(v);
    }
    const bool goes_on = world.call(all, &result);
    if (round > 4) CHECK(goes_on);
    for (float& x : result) x /= 4;
  }
}

// Far from its beginning a training's averages lie about the place that it has come to, each where chance has it.
TEST_CASE("averages that have come to rest go on") {
  World world(4);
  Vector result(kCount);
  const Vector place = normal(1);
  for (std::uint64_t round = 0; round < 60; ++round) {
    std::vector<Vector> all;
    for (std::size_t r = 0; r < 4; ++r) {
      Vector v = sum(result, normal(1000 * round + r), 0.3f);
      for (std::size_t i = 0; i < kCount; ++i) v[i] += 0.4f * (place[i] - result[i]);
      all.push_back(v);
    }
    const bool goes_on = world.call(all, &result);
    if (round > 4) CHECK(goes_on);
    for (float& x : result) x /= 4;
  }
}

// Gradients have a part in common and noise of each rank's minibatch, here from a fifth of it on.
TEST_CASE("gradients do not go on") {
  for (const int ranks : {2, 8})
    for (const float noise : {0.2f, 1.0f, 10.0f}) {
      CAPTURE(ranks);
      CAPTURE(noise);
      World world(ranks);
      const Vector common = normal(1);
      for (std::uint64_t step = 0; step < 60; ++step) CHECK(!world.call(world.each(common, noise, 7 + step)));
    }
}

// As those of an output layer: few values are most of the square, and each element is as noisy as any.
TEST_CASE("gradients of very uneven magnitudes do not go on") {
  for (const float deviation : {1.0f, 2.0f, 3.0f})
    for (const int ranks : {2, 8}) {
      CAPTURE(deviation);
      World world(ranks);
      Vector common = normal(1);
      const Vector octaves = normal(2, deviation);
      for (std::size_t i = 0; i < kCount; ++i) common[i] *= std::exp(octaves[i]);
      int found = 0;
      for (std::uint64_t step = 0; step < 60; ++step) {
        std::vector<Vector> all = world.each(Vector(kCount), 1, 7 + step);
        for (Vector& v : all)
          for (std::size_t i = 0; i < kCount; ++i) v[i] = common[i] * (1 + 0.25f * v[i]);
        found += world.call(all);
      }
      CHECK(found <= (deviation < 3 ? 0 : 5));
    }
}

// Parameters of layers of very different size in one buffer, with a noise that is the same everywhere in a layer.
TEST_CASE("averages of uneven magnitudes go on") {
  World world(4);
  Vector result = normal(1);
  const auto scale = [](std::size_t i) { return i < kCount / 8 ? 1.0f : i < kCount / 2 ? 0.1f : 0.02f; };
  for (std::size_t i = 0; i < kCount; ++i) result[i] *= scale(i);
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<Vector> all = world.each(Vector(kCount), 0.05f, round);
    for (Vector& v : all)
      for (std::size_t i = 0; i < kCount; ++i) v[i] = result[i] + scale(i) * v[i];
    CHECK(world.call(all, &result) == (round > 0));
    for (float& x : result) x /= 4;
  }
}

// Steps of training: the common part turns and shrinks a little from each to the next, less than its noise.
TEST_CASE("gradients of a training do not go on, and a name's are not looked at askance for long") {
  for (const int ranks : {2, 16})
    for (const float noise : {0.3f, 0.6f, 1.0f, 3.0f}) {
      CAPTURE(ranks);
      CAPTURE(noise);
      World world(ranks), named(ranks);
      Vector common = normal(1);
      int asked = 0;
      for (std::uint64_t step = 0; step < 60; ++step) {
        const std::vector<Vector> all = world.each(common, noise, 7 + step);
        CHECK(!world.call(all));
        asked += named.call(all, nullptr, Whose::one);
        for (float& x : common) x *= 0.99f;
        common = sum(common, normal(500 + step), 0.1f * noise / std::sqrt(static_cast<float>(ranks)));
      }
      CHECK(asked <= 4);
    }
}

// A training whose first steps go in one direction, so that they are like averages, and whose others do not.
TEST_CASE("gradients that were like averages in their first steps are none later") {
  crimp::test::Turns turns(1, 5, 5);
  for (const float noise : {0.5f, 0.7f, 0.9f})
    for (const Whose whose : {Whose::several, Whose::one}) {
      if (!turns.next()) continue;
      CAPTURE(noise);
      World world(16);
      Vector common = normal(1);
      const Vector turn = normal(2);
      int late = 0;
      for (std::uint64_t step = 0; step < 120; ++step) {
        const bool early = step < 20;
        const bool goes_on = world.call(world.each(common, early ? 0.3f : noise, 7 + step), nullptr, whose);
        if (step >= 40) late += goes_on;
        if (early) common = sum(common, turn, 0.1f);
      }
      CHECK(late <= 4);
    }
}

// Local SGD with large steps: the parameters grow out of small ones, fast at first, later each rank pulls where chance
// has it. Shares are those of federated averaging: other ones in each round, 1 in all.
TEST_CASE("a name's averages go on, however far they move and ranks' shares change") {
  for (const float moves : {0.1f, 0.4f})
    for (const int ranks : {2, 8}) {
      CAPTURE(moves);
      CAPTURE(ranks);
      World world(ranks);
      Vector result = normal(1, 0.3f);
      const Vector place = normal(2), draws = normal(3, 0.3f);
      for (std::uint64_t round = 0; round < 120; ++round) {
        CAPTURE(round);
        std::vector<Vector> all = world.each(sum(result, sum(place, result, -1), moves), 0.15f, 7 + round);
        std::vector<float> shares;
        for (std::size_t r = 0; r < all.size(); ++r) shares.push_back(std::exp(draws[100 * round + r]));
        const float whole = std::accumulate(shares.begin(), shares.end(), 0.0f);
        for (std::size_t r = 0; r < all.size(); ++r)
          for (float& x : all[r]) x *= shares[r] / whole;
        const bool goes_on = world.call(all, &result, Whose::one);
        if (round > 4) CHECK(goes_on);
      }
    }
}

TEST_CASE("of what is said to be a gradient only what moves by less than a hundredth goes on") {
  for (const float noise : {0.05f, 0.3f}) {
    World world(4);
    Vector result = normal(1);
    int found = 0;
    for (std::uint64_t round = 0; round < 20; ++round) {
      found += world.call(world.each(result, noise, round), &result, Whose::gradient);
      for (float& x : result) x /= 4;
    }
    CHECK(found == (noise < 0.1f ? 19 : 0));
  }
}

// A rank's own part of the data, again and again, without noise: as averages of ranks that pull apart.
TEST_CASE("gradients of all of the data cannot be told from averages") {
  World world(4);
  Vector common = normal(1);
  const std::vector<Vector> own = world.each(Vector(kCount), 0.3f, 5);
  int found = 0;
  for (std::uint64_t step = 0; step < 30; ++step) {
    std::vector<Vector> all;
    for (const Vector& v : own) all.push_back(sum(common, v));
    found += world.call(all);
    for (float& x : common) x *= 0.97f;
  }
  CHECK(found >= 25);
}

TEST_CASE("the same values again, and in another size, do not go on") {
  World world(3);
  Vector v = normal(1);
  for (int step = 0; step < 10; ++step) {
    CHECK(!world.call({v, v, v}));
    for (float& x : v) x *= 1.25f;
  }
}

TEST_CASE("pieces in places of their own go on; sparse gradients in any place do not") {
  World pieces(4), sparse(4);
  for (std::uint64_t step = 0; step < 30; ++step) {
    std::vector<Vector> of(4, Vector(kCount)), at(4, Vector(kCount));
    std::mt19937_64 bits(step);
    for (std::size_t r = 0; r < 4; ++r) {
      const Vector values = normal(step * 4 + r);
      std::copy_n(values.begin(), kCount / 4, of[r].begin() + static_cast<std::ptrdiff_t>(r * kCount / 4));
      for (std::size_t row = 0; row < kCount / 100; ++row)
        if (bits() % 10 == 0) std::copy_n(values.begin(), 100, at[r].begin() + static_cast<std::ptrdiff_t>(row * 100));
    }
    CHECK(pieces.call(of) == (step > 0));
    CHECK(!sparse.call(at));
  }
}

TEST_CASE("what is kept is bounded, and every key has some of it") {
  PastSums sums;
  const Vector v = normal(1), w = normal(2);
  const Sample gave = sample(v), sum_of = sample(w), next = sample(sum(w, normal(3), 0.05f));
  const auto call = [&](std::uint64_t key) {
    continues(sums, key, gave);
    if (sums.wanted(key, false)) sums.keep(key, gave, sum_of);
  };
  for (int round = 0; round < 128; ++round)
    for (std::uint64_t key = 0; key < 64; ++key) call(key);  // twice what there is room for
  for (std::uint64_t key = 100; key < 1000; ++key) call(key);
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{100}, std::uint64_t{999}})
    CHECK(continues(sums, key, next));
  for (std::uint64_t key = 1000; key < 5100; ++key) call(key);
  CHECK(continues(sums, 1500, next));
  CHECK(!continues(sums, 5099, next));  // all have one
  CHECK(!sums.wanted(5099, false));
}

TEST_CASE("values that are not numbers, and zeros, say nothing") {
  PastSums sums;
  const Vector v = normal(1);
  Vector bad = v;
  std::fill(bad.begin(), bad.end(), NAN);
  const Sample good = sample(v), nan = sample(bad), zero = sample(Vector(kCount));
  for (const Sample* gave : {&good, &nan, &zero})
    for (const Sample* sum : {&nan, &zero}) {
      continues(sums, kKey, *gave);
      sums.keep(kKey, *gave, *sum);
    }
  for (const Sample* values : {&good, &nan, &zero}) CHECK(!continues(sums, kKey, *values));
}

TEST_CASE("sums are kept of the first calls, and then of some") {
  PastSums sums;
  const Sample v = sample(normal(1)), w = sample(normal(2));
  std::size_t kept = 0, slow = 0;
  for (int call = 0; call < 640; ++call) {
    continues(sums, kKey, v);
    slow += sums.wanted(kKey, true);
    if (sums.wanted(kKey, false)) sums.keep(kKey, v, w), ++kept;
  }
  CHECK(slow == PastSums::kAll);
  CHECK(kept == PastSums::kAll + (640 - PastSums::kAll) / PastSums::kEvery);
}

// As the ranks' average of one tensor turns up behind many gradients.
TEST_CASE("what is skipped is what would neither be found nor kept") {
  PastSums sums;
  const std::uint64_t key = PastSums::key_of("weight", kCount);
  std::size_t skipped = 0;
  for (std::uint64_t call = 0; call < 640; ++call) {
    if (sums.skip(key)) {
      ++skipped;
      continue;
    }
    const Vector v = normal(call);
    CHECK(!continues(sums, key, sample(v)));
    if (sums.wanted(key, false)) sums.keep(key, sample(v), sample(sum(v, normal(1000 + call))));
  }
  CHECK(skipped == (640 - PastSums::kAllOfOne) * (PastSums::kEvery - 2) / PastSums::kEvery);
  // From within kEvery calls on.
  Vector result = normal(3000);
  int found = 0;
  for (std::uint64_t call = 0; call < 2 * PastSums::kEvery; ++call) {
    Vector v = sum(result, normal(4000 + call), 0.05f), w = sum(result, normal(5000 + call), 0.05f);
    const bool skips = sums.skip(key);
    if (!skips) found += continues(sums, key, sample(v));
    result = sum(v, w);
    if (!skips && sums.wanted(key, false)) sums.keep(key, sample(v), sample(result));
    for (float& x : result) x /= 2;
  }
  CHECK(found >= static_cast<int>(PastSums::kEvery) - 2);
}

TEST_SUITE_END();
