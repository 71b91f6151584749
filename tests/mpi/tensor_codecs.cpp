// crimp_set_codec and crimp_set_learning_rate: whom they reach, what they leave of residuals, and what happens where
// ranks differ.
//   tensor_codecs | tensor_codecs owners (learning rates by two shots) | tensor_codecs jump (CRIMP_RESIDUAL_JUMP=8)
#include "check.hpp"
#include "crimp/crimp.h"

using check::expected, check::rank, check::size;

namespace {

constexpr std::size_t kCount = 20000;
MPI_Comm world = MPI_COMM_WORLD;

std::vector<float> sum_of(const char* name, std::vector<float> x, MPI_Comm comm = world) {
  const crimp_segment one[] = {{name, x.size()}};
  CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, comm, one, 1) == MPI_SUCCESS);
  return x;
}

// How a tensor of this name is summed, told by what becomes of 1 + 2^-8 + 2^-12: float16 keeps 10 bits behind the
// point, bfloat16 7.
void expect_codec(const char* name, const char* codec, MPI_Comm comm = world) {
  const float kept = !std::strcmp(codec, "fp16")   ? 1 + 0x1p-8f
                     : !std::strcmp(codec, "bf16") ? 1 + 0x1p-7f
                                                   : 1 + 0x1p-8f + 0x1p-12f;
  const float got = sum_of(name, std::vector<float>(kCount, 1 + 0x1p-8f + 0x1p-12f), comm)[kCount / 2];
  CHECK(got == static_cast<float>(size) * kept, "%s: sum %.9g, with %s it would be %.9g", name,
        static_cast<double>(got), codec, size * static_cast<double>(kept));
}

void set(const char* pattern, const char* spec, MPI_Comm comm = world) {
  CHECK(crimp_set_codec(comm, pattern, spec) == MPI_SUCCESS, "%s", pattern);
}

void refused(int rc, const char* text) { check::refused(text, rc); }

// CRIMP_CODEC is fp16, CRIMP_RULES are "*bias=none".
void whom_it_reaches() {
  expect_codec("a.weight", "fp16");
  expect_codec("a.bias", "none");
  set("*.bias", "bf16");  // ahead of CRIMP_RULES
  expect_codec("a.weight", "fp16");
  expect_codec("a.bias", "bf16");
  set("a*", "none");  // ahead of what was said before
  expect_codec("a.weight", "none");
  expect_codec("a.bias", "none");
  expect_codec("b.bias", "bf16");
  set("a*", nullptr);  // back to the settings, for what matches
  expect_codec("a.weight", "fp16");
  expect_codec("a.bias", "none");
  expect_codec("b.bias", "bf16");
  set("*", "bf16");
  for (const char* name : {"a.weight", "a.bias", "b.bias", "anything"}) expect_codec(name, "bf16");
  MPI_Comm other;
  MPI_Comm_dup(world, &other);
  expect_codec("a.weight", "fp16", other);  // another communicator's tensors are others
  set("*", nullptr);
  expect_codec("a.weight", "fp16");
  expect_codec("a.bias", "none");
  set("*", "bf16", other);
  expect_codec("a.weight", "fp16");
  expect_codec("a.weight", "bf16", other);
  MPI_Comm_free(&other);
}

void what_is_wrong_is_said() {
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  refused(crimp_set_codec(world, "*", rank == size - 1 ? "bf16" : "fp16"), "on rank 0 and ");
  refused(crimp_set_codec(world, rank ? "*" : "a*", "bf16"), "('a*', 'bf16') on rank 0 and ('*', 'bf16') on rank 1");
  refused(crimp_set_codec(world, "*", rank ? "bf16" : nullptr), "('*', NULL) on rank 0 and ('*', 'bf16') on rank 1");
  refused(crimp_set_codec(world, "*", rank ? "bf16" : "bf61"),
          "on rank 0 and");  // nobody waits for the rank whose text is none
  expect_codec("a.weight", "fp16");
  refused(crimp_set_codec(world, "*", "bf61"), "codec 'bf61' is not known");
  refused(crimp_set_codec(world, nullptr, "bf16"), "pattern");
  refused(crimp_set_codec(world, "", "bf16"), "pattern");
  refused(crimp_set_codec(MPI_COMM_NULL, "*", "bf16"), "MPI_COMM_NULL");
  refused(crimp_set_learning_rate(world, 0.1 + rank), "0.1 on rank 0 and 1.1 on rank 1");
  for (const double rate : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)})
    refused(crimp_set_learning_rate(world, rate), "learning rate");
  refused(crimp_set_algorithm(world, rank ? "allgather" : "two_shot"),
          "'two_shot' on rank 0 and 'allgather' on rank 1");
  refused(crimp_set_algorithm(world, rank ? "allgather" : "allgathers"), "on rank 0 and");
  for (const char* name : {"allgathers", static_cast<const char*>(nullptr)})
    refused(crimp_set_algorithm(world, name), "legal is: auto, allgather");
  refused(crimp_set_extents(world, "a", 4, rank ? 5 : 6), "('a', 4, 6) on rank 0 and ('a', 4, 5) on rank 1");
  refused(crimp_set_extents(world, rank ? "a" : nullptr, 4, 5), "(NULL, 4, 5) on rank 0 and");
  refused(crimp_set_extents(world, nullptr, 4, 5), "no name");
  refused(crimp_set_extents(world, "a", 0, 5), "0 x 5 for 'a'");
  expect_codec("a.weight", "fp16");
}

// Gradients g > 0, the first element the largest: of 20000 elements one is sent and the others wait.
constexpr const char* kFew = "topk:ratio=0.00005";
constexpr const char* kAll = "topk:ratio=1";
std::vector<float> gradient(float unit) {
  std::vector<float> g(kCount, unit);
  g[0] = 3.0f * unit;
  return g;
}
void begin_with_residual(const char* name, float unit = 1) {
  set("*", kFew);
  const auto sum = sum_of(name, gradient(unit));
  CHECK(sum[0] == static_cast<float>(3 * size) * unit && sum[1] == 0.0f, "%g, %g", static_cast<double>(sum[0]),
        static_cast<double>(sum[1]));
}
void expect_sum(const char* name, float first, float others, float unit = 1) {
  const auto sum = sum_of(name, gradient(unit));
  const auto n = static_cast<float>(size) * unit;
  CHECK(sum[0] == n * first && std::abs(sum[1] - n * others) <= 1e-5f * n * others && sum[kCount - 1] == sum[1],
        "%s: %.9g, %.9g", name, static_cast<double>(sum[0]), static_cast<double>(sum[1]));
}

void what_becomes_of_residuals() {
  begin_with_residual("kept");
  set("*", kAll);
  expect_sum("kept", 3, 2);

  begin_with_residual("kept over others");
  set("*", "none");
  expect_sum("kept over others", 3, 1);
  set("*", "fp16");
  expect_sum("kept over others", 3, 1);
  set("*", kAll);
  expect_sum("kept over others", 3, 2);

  begin_with_residual("another kind");
  set("*", "topk:ratio=1,memory=momentum");
  expect_sum("another kind", 3, 1);  // begins from zeros: u = g, v = u
  set("*", kAll);
  expect_sum("another kind", 3, 1);

  begin_with_residual("gamma");
  set("*", "topk:ratio=1,gamma=0.5,decay=0.25");  // GRACE: beta r + gamma g
  expect_sum("gamma", 1.5f, 0.75f);
}

// p = lr g + e in the paper, what travels here is p / lr: when lr falls to a tenth, what waits weighs ten times as
// much.
void learning_rate() {
  CHECK(crimp_set_learning_rate(world, 0.1) == MPI_SUCCESS);
  begin_with_residual("rate");
  CHECK(crimp_set_learning_rate(world, 0.05) == MPI_SUCCESS);
  CHECK(crimp_set_learning_rate(world, 0.01) == MPI_SUCCESS);
  set("*", kAll);
  expect_sum("rate", 3, 11);
  expect_sum("rate", 3, 1);
  // As far as values may go, 2^100 here; what waits stays a quarter of that, so that it can be added to what comes.
  for (const float unit : {0x1p60f, 0x1p96f}) {
    const std::string name = "rate " + std::to_string(unit);
    CHECK(crimp_set_learning_rate(world, 0.1) == MPI_SUCCESS);
    begin_with_residual(name.c_str(), unit);
    CHECK(crimp_set_learning_rate(world, 0.01) == MPI_SUCCESS);
    set("*", kAll);
    expect_sum(name.c_str(), 3, unit == 0x1p96f ? 5 : 11, unit);
  }
  begin_with_residual("same rate");
  CHECK(crimp_set_learning_rate(world, 0.01) == MPI_SUCCESS);
  set("*", kAll);
  expect_sum("same rate", 3, 2);
}

// With two shots owners hold back parts of sums, beside what ranks hold back of their gradients. Nothing is lost, so
// all that a sum lacks waits somewhere, and weighs ten times as much when the rate falls to a tenth. Of the two pieces
// each rank sends another element: of what owners receive most must wait with them.
void learning_rate_of_owners() {
  const auto gradient_of = [](int of_rank) {
    std::vector<float> g(kCount, 1.0f);
    for (const std::size_t piece : {0, 10240})
      g[piece + static_cast<std::size_t>(of_rank)] = 3.0f + 0.25f * static_cast<float>(of_rank);
    return g;
  };
  std::vector<double> all(kCount), waits;
  for (int r = 0; r < size; ++r)
    for (std::size_t i = 0; i < kCount; ++i) all[i] += static_cast<double>(gradient_of(r)[i]);
  const auto call = [&](const char* codec, double times) {
    set("*", codec);
    const auto sum = sum_of("owned", gradient_of(rank));
    const bool first = waits.empty();
    waits.resize(kCount);
    double off = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double expected = all[i] + times * waits[i];
      off = std::max(off, std::abs(static_cast<double>(sum[i]) - expected) / expected);
      waits[i] = expected - static_cast<double>(sum[i]);
    }
    CHECK(first || off <= 1e-5, "%s: off by %g", codec, off);
    const auto sent = std::count_if(sum.begin(), sum.end(), [](float x) { return x != 0; });
    CHECK(!first || (sent > 0 && sent < 2 * size), "%ld elements", static_cast<long>(sent));
  };
  CHECK(crimp_set_learning_rate(world, 0.1) == MPI_SUCCESS);
  call(kFew, 1);
  CHECK(crimp_set_learning_rate(world, 0.05) == MPI_SUCCESS);
  CHECK(crimp_set_learning_rate(world, 0.01) == MPI_SUCCESS);
  call(kAll, 10);
  call(kAll, 1);
}

// An infinity, which MPI has, is no size that a tensor has fallen from: what waits stays, though it is more than
// what comes next. What has fallen by more than the jump drops it.
void infinities_are_no_size() {
  begin_with_residual("kept");
  auto infinite = gradient(1);
  if (rank == 0) infinite[5] = INFINITY;
  CHECK(std::isinf(sum_of("kept", infinite)[5]));
  set("*", kAll);
  expect_sum("kept", 3, 5, 0.25f);
  begin_with_residual("dropped");
  set("*", kAll);
  expect_sum("dropped", 3, 1, 0.0625f);
}

// EF-SignSGD (Karimireddy et al., ICML 2019, algorithm 1), its scale per piece of 10240 elements: x after 30 steps, the
// rate a tenth from step 10 on.
void paper() {
  set("*", "efsignsgd");
  constexpr std::size_t kPiece = 10240;
  const auto n = static_cast<std::size_t>(size);
  std::vector<double> x(kCount), mine(kCount);
  std::vector<std::vector<double>> e(n, std::vector<double>(kCount));
  for (unsigned step = 0; step < 30; ++step) {
    const double lr = step < 10 ? 0.5 : 0.05;
    CHECK(crimp_set_learning_rate(world, lr) == MPI_SUCCESS);
    std::vector<float> g(kCount);
    for (int r = 0; r < size; ++r) {
      std::vector<double> p(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto value = static_cast<float>(check::value(i, r, step));
        if (r == rank) g[i] = value;
        p[i] = lr * static_cast<double>(value) + e[static_cast<std::size_t>(r)][i];
      }
      for (std::size_t begin = 0; begin < kCount; begin += kPiece) {
        const std::size_t end = std::min(begin + kPiece, kCount);
        double scale = 0;
        for (std::size_t i = begin; i < end; ++i) scale += std::abs(p[i]) / static_cast<double>(end - begin);
        for (std::size_t i = begin; i < end; ++i) {
          const double d = p[i] < 0 ? -scale : scale;
          x[i] -= d;
          e[static_cast<std::size_t>(r)][i] = p[i] - d;
        }
      }
    }
    const auto sum = sum_of("x", g);
    for (std::size_t i = 0; i < kCount; ++i) mine[i] -= lr * static_cast<double>(sum[i]);
  }
  double wrong = 0, norm = 0;
  for (std::size_t i = 0; i < kCount; ++i) wrong += (x[i] - mine[i]) * (x[i] - mine[i]), norm += x[i] * x[i];
  // A residual near zero may fall on the other side by float32's rounding: then an element is a scale away, for a
  // while.
  CHECK(wrong < 1e-4 * norm, "off by %.2g of the norm", std::sqrt(wrong / norm));
}

// Few values are MPI's, which is faster, and after some calls nobody asks any more. Votes are not MPI's.
void passing_calls_are_reached() {
  CHECK(crimp_set_algorithm(world, "auto") == MPI_SUCCESS);
  set("*", "fp16");
  const std::vector<float> mine(64, rank == 0 ? -1.5f : 0.5f);
  for (int call = 0; call < 200; ++call) static_cast<void>(sum_of("passing", mine));
  set("*", "signsgd");
  const auto votes = static_cast<float>(size == 2 ? 0 : size);
  const float got = sum_of("passing", mine)[7];
  CHECK(got == votes, "%g, not %g votes", static_cast<double>(got), static_cast<double>(votes));
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  if (argc > 1) {
    std::strcmp(argv[1], "jump") ? learning_rate_of_owners() : infinities_are_no_size();
    return check::finish();
  }
  whom_it_reaches();
  what_is_wrong_is_said();
  what_becomes_of_residuals();
  learning_rate();
  paper();
  passing_calls_are_reached();
  return check::finish();
}
