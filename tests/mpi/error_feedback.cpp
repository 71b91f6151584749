// Trainings that name no tensors: whatever the order and the buffers in which they send equal tensors, error feedback
// must not be worse than none.
//   error_feedback SCENARIO
#include <cstring>
#include <functional>
#include <random>

#include "check.hpp"
#include "crimp/crimp.h"

using check::expected, check::rank, check::size;
using Vector = std::vector<float>;

namespace {

constexpr std::size_t kCount = 40000;

bool is_codec(const char* name) { return std::strncmp(std::getenv("CRIMP_CODEC"), name, std::strlen(name)) == 0; }

Vector normal(std::size_t count, unsigned seed, double scale) {
  Vector v(count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;  // of twelve uniform values: nearly normal
    for (unsigned k = 0; k < 12; ++k) sum += check::value(12 * i + k, 0, seed) / 2;
    v[i] = static_cast<float>(scale * sum);
  }
  return v;
}

// Where a program has its tensors when it sends them.
struct Buffers {
  bool staged;
  std::vector<Vector> own;
  Vector staging;
  Vector& take(std::size_t tensor, const Vector& values) {
    if (own.size() <= tensor) own.resize(tensor + 1);
    Vector& to = staged ? staging : own[tensor];
    if (to.capacity() < 2 * kCount) to.reserve(2 * kCount);  // stays where it is
    to = values;
    return to;
  }
};

void reduce(Vector& v, MPI_Comm comm) {
  MPI_Allreduce(MPI_IN_PLACE, v.data(), static_cast<int>(v.size()), MPI_FLOAT, MPI_SUM, comm);
}

double norm(const Vector& v) {
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// Constant gradients: the results of all steps must come near to the steps times the sum, tensor by tensor. DGC's
// momentum makes ten times as much.
void constant(const std::vector<double>& scales, bool staged, int steps, std::size_t last_count) {
  const std::size_t n = scales.size();
  Buffers buffers{staged, {}, {}};
  std::vector<Vector> mine, exact;
  std::vector<std::vector<double>> total;
  for (std::size_t t = 0; t < n; ++t) {
    const std::size_t count = t + 1 == n ? last_count : kCount;
    exact.emplace_back(count);
    for (int r = 0; r < size; ++r) {
      const Vector v = normal(count, static_cast<unsigned>(1000 * r) + static_cast<unsigned>(t), scales[t]);
      for (std::size_t i = 0; i < count; ++i) exact[t][i] += v[i];
      if (r == rank) mine.push_back(v);
    }
    total.emplace_back(count);
  }
  for (int step = 0; step < steps; ++step)
    for (std::size_t t = 0; t < n; ++t) {
      Vector& v = buffers.take(t, mine[t]);
      reduce(v, MPI_COMM_WORLD);
      // In every single call what is not the tensor's own must be small: its own residual holds back a part of its own
      // past.
      if (is_codec("3lc"))
        CHECK(norm(v) < 4 * norm(exact[t]), "tensor %zu, step %d: %.3g times its norm", t, step,
              norm(v) / norm(exact[t]));
      for (std::size_t i = 0; i < v.size(); ++i) total[t][i] += static_cast<double>(v[i]);
    }
  for (std::size_t t = 0; t < n; ++t) {
    double error = 0, product = 0, squares = 0, wanted = 0;
    for (std::size_t i = 0; i < total[t].size(); ++i) {
      const double mean = total[t][i] / steps, e = static_cast<double>(exact[t][i]);
      error += (mean - e) * (mean - e);
      product += mean * e;
      squares += mean * mean;
      wanted += e * e;
    }
    const double cosine = product / std::sqrt(squares * wanted);
    if (rank == 0)
      std::printf("tensor %zu: error %.4f of its norm, cosine %.4f\n", t, std::sqrt(error / wanted), cosine);
    CHECK(cosine > 0.8, "tensor %zu: cosine %.4f", t, cosine);
    const double most = is_codec("3lc") || is_codec("1bit") ? 0.1 : is_codec("dgc") ? 10 : 0.6;
    CHECK(std::sqrt(error / wanted) < most, "tensor %zu: wrong by %.4f of its norm", t, std::sqrt(error / wanted));
  }
  if (size > 1) expected["layouts.periodic.calls>"] = static_cast<long>(steps * static_cast<int>(n)) / 3;
}

// Gradient descent on a quadratic whose gradient is sent in equal chunks, each of its own scale. Returns every chunk's
// loss after it, of the loss before.
std::vector<double> descend(const std::vector<double>& scales, bool whole, bool staged, bool shuffled, int steps) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  const std::size_t n = scales.size();
  std::vector<Vector> curvature, x, mine, mean;
  for (std::size_t k = 0; k < n; ++k) {
    const auto seed = static_cast<unsigned>(k);
    curvature.push_back(normal(kCount, 500 + seed, 0.25));
    for (float& h : curvature[k]) h = 1 + std::clamp(h, -0.9f, 0.9f);
    x.emplace_back(kCount);
    mean.emplace_back(kCount);
    for (int r = 0; r < size; ++r) {
      const Vector target = normal(kCount, 600 + 10 * static_cast<unsigned>(r) + seed, 1);
      for (std::size_t i = 0; i < kCount; ++i) mean[k][i] += target[i] / static_cast<float>(size);
      if (r == rank) mine.push_back(target);
    }
  }
  const auto loss = [&](std::size_t k) {
    double sum = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double d = static_cast<double>(x[k][i]) - static_cast<double>(mean[k][i]);
      sum += static_cast<double>(curvature[k][i]) * d * d;
    }
    return sum;
  };
  std::vector<double> before, after;
  for (std::size_t k = 0; k < n; ++k) before.push_back(loss(k));
  Buffers buffers{staged, {}, {}};
  std::vector<std::size_t> order(n);
  for (std::size_t k = 0; k < n; ++k) order[k] = k;
  std::mt19937 bits(5);
  const float rate = is_codec("dgc") ? 0.005f : is_codec("powersgd") ? 0.001f : 0.05f;
  const auto gradient = [&](std::size_t k) {
    Vector g(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      g[i] = static_cast<float>(scales[k]) * curvature[k][i] * (x[k][i] - mine[k][i]);
    return g;
  };
  const auto apply = [&](std::size_t k, const float* sum) {
    for (std::size_t i = 0; i < kCount; ++i) x[k][i] -= rate / static_cast<float>(scales[k] * size) * sum[i];
  };
  for (int step = 0; step < steps; ++step) {
    if (whole) {
      Vector all;
      for (std::size_t k = 0; k < n; ++k) {
        const Vector g = gradient(k);
        all.insert(all.end(), g.begin(), g.end());
      }
      reduce(all, comm);
      for (std::size_t k = 0; k < n; ++k) apply(k, all.data() + k * kCount);
      continue;
    }
    if (shuffled) std::shuffle(order.begin(), order.end(), bits);
    for (const std::size_t k : order) {
      Vector& v = buffers.take(k, gradient(k));
      reduce(v, comm);
      apply(k, v.data());
    }
  }
  for (std::size_t k = 0; k < n; ++k) after.push_back(loss(k) / before[k]);
  MPI_Comm_free(&comm);
  return after;
}

void quadratic() {
  const std::vector<double> same(4, 1.0), scales{1, 0.1, 0.01, 0.001};
  const auto show = [](const char* how, const std::vector<double>& losses) {
    if (rank != 0) return;
    std::printf("%s:", how);
    for (const double l : losses) std::printf(" %.4f", l);
    std::puts("");
  };
  // What the codec does to one gradient sent as a whole, of one scale, is what it may do to chunks.
  const auto whole = descend(same, true, true, false, 200);
  show("whole", whole);
  double most = 0;
  for (const double l : whole) most = std::max(most, l);
  for (const bool staged : {false, true})
    for (const bool shuffled : {false, true}) {
      const auto chunks = descend(scales, false, staged, shuffled, 200);
      show(staged ? (shuffled ? "one buffer, in random order" : "one buffer")
                  : (shuffled ? "in random order" : "in order"),
           chunks);
      expected["errors"] = 0;
      for (std::size_t k = 0; k < chunks.size(); ++k)
        CHECK(chunks[k] < 2 * most + 0.02, "chunk %zu: %.4f of the loss, whole %.4f", k, chunks[k], most);
    }
}

// A hundred steps of training and one evaluation, in turns: of another count, or of the same from another buffer, or
// from the same one.
void phases() {
  constexpr int kRounds = 9, kSteps = 100;
  Vector gradient = normal(kCount, 1 + static_cast<unsigned>(rank), 1), metrics = normal(kCount, 90, 30), buffer;
  buffer.reserve(2 * kCount);
  for (int round = 0; round < kRounds; ++round) {
    for (int step = 0; step < kSteps; ++step) {
      buffer = gradient;
      reduce(buffer, MPI_COMM_WORLD);
    }
    if (round % 3 == 0) {
      Vector other = normal(kCount + 1000, 91, 1);
      reduce(other, MPI_COMM_WORLD);
    } else if (round % 3 == 1) {
      Vector other = metrics;
      reduce(other, MPI_COMM_WORLD);
    } else {
      buffer = metrics;
      for (float& v : buffer) v *= 100;
      reduce(buffer, MPI_COMM_WORLD);
    }
  }
  if (size == 1) return;
  expected["layouts.periodic.calls"] = kRounds * kSteps - 5;
  expected["passed_through.foreign"] = 6;
  expected["unnamed.tensors"] = 1;
  expected["unnamed.withdrawn"] = 0;
}

// After a call in which counts differ, which is an error on all ranks, the right ones go on as before.
void differs() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Vector gradient = normal(kCount, 1 + static_cast<unsigned>(rank), 1), buffer;
  buffer.reserve(2 * kCount);
  for (int call = 0; call < 60; ++call) {
    buffer = gradient;
    if (call == 30 && rank == 1) buffer.resize(kCount + 100);
    const int rc =
        MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(buffer.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK((rc != MPI_SUCCESS) == (call == 30), "call %d: %d", call, rc);
  }
  expected["layouts.periodic.calls"] = 60 - 5 - 1;
  expected["errors"] = 1;
}

// Outliers in one step of a named tensor, with CRIMP_RESIDUAL_JUMP: they must not come back.
void outlier() {
  const auto named = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
  const crimp_segment tensor{"tensor", kCount};
  Vector gradient = normal(kCount, 1 + static_cast<unsigned>(rank), 1), sum(kCount), buffer;
  for (int r = 0; r < size; ++r) {
    const Vector v = normal(kCount, 1 + static_cast<unsigned>(r), 1);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += v[i];
  }
  const double whole = norm(sum);
  expected[size > 1 ? "calls" : "passed_through.communicator"] = 40;
  buffer.reserve(2 * kCount);
  for (int call = 0; call < 40; ++call) {
    buffer = gradient;
    if (call == 20)
      for (std::size_t i = 0; i < kCount; i += 10) buffer[i] *= 1000;
    CHECK(named &&
          named(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, &tensor, 1) == MPI_SUCCESS);
    if (call > 20) CHECK(norm(buffer) < 3 * whole, "call %d: %.2f times the norm", call, norm(buffer) / whole);
  }
}

// CRIMP_RESIDUAL=8bit: a byte of each element is kept, and a float of each 256.
void bytes() {
  const auto named = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
  const crimp_segment tensor{"tensor", kCount};
  for (int call = 0; call < 3; ++call) {
    Vector buffer = normal(kCount, 1 + static_cast<unsigned>(rank), 1);
    CHECK(named(MPI_IN_PLACE, buffer.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, &tensor, 1) == MPI_SUCCESS);
  }
  expected["calls"] = 3;
  expected["residual_bytes"] = static_cast<long>(kCount + (kCount + 255) / 256 * sizeof(float));
}

// One value in one call of a known tensor is far larger than it ever was: MPI's sum for that call, which the report
// tells from values that no codec takes.
void spike() {
  const Vector gradient = normal(kCount, 1 + static_cast<unsigned>(rank), 1);
  Vector buffer, plain(kCount);
  for (int call = 0; call < 40; ++call) {
    buffer = gradient;
    if (call == 20 && rank == 0) buffer[77] = 1e6f;
    if (call == 30 && rank == 0) buffer[77] = NAN;
    if (call == 20)
      check::native_allreduce(buffer.data(), plain.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM,
                              MPI_COMM_WORLD);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    if (call == 20) CHECK(buffer == plain, "not MPI's bits");
    if (call == 30) CHECK(std::isnan(buffer[77]) && !std::isnan(buffer[78]));
  }
  expected["layouts.periodic.calls"] = 40 - 5 - 2;
  expected["passed_through.outlier"] = 1;
  expected["passed_through.range"] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  const std::string scenario = argc > 1 ? argv[1] : "";
  const int steps = 300;
  if (scenario == "two") constant({1, 0.01}, false, steps, kCount);
  else if (scenario == "two_staged") constant({1, 0.01}, true, steps, kCount);
  else if (scenario == "layers") constant(std::vector<double>(13, 1.0), false, 60, kCount / 2);
  else if (scenario == "layers_staged")
    constant({1, .5, .25, .1, .05, 1, .5, .25, .1, .05, 1, .5, 1}, true, 60, kCount / 2);
  else if (scenario == "quadratic") quadratic();
  else if (scenario == "phases") phases();
  else if (scenario == "differs") differs();
  else if (scenario == "outlier") outlier();
  else if (scenario == "spike") spike();
  else if (scenario == "bytes") bytes();
  else CHECK(false, "unknown scenario '%s'", scenario.c_str());
  return check::finish();
}
