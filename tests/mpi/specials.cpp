// NaN and Inf in one rank only, values outside a codec's range, signed zeros and subnormals. What is not finite gets
// MPI's own bits on every rank, and leaves no trace in later calls: the calls repeat, so that 3lc keeps residuals.
#include <limits>

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr std::size_t kCount = 50000;
using Limits = std::numeric_limits<float>;

// Sums, with `strange` at one place of one rank.
void call(float strange, int strange_rank, bool mpi_bits, const char* what) {
  std::vector<float> in(kCount), out(kCount), plain(kCount);
  for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(check::value(i, rank));
  if (rank == strange_rank) in[kCount / 3] = strange;
  CHECK(MPI_Allreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS, "%s", what);
  CHECK(check::identical(out.data(), kCount * sizeof(float), MPI_COMM_WORLD), "%s", what);
  if (mpi_bits) {
    check::native_allreduce(in.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(std::memcmp(out.data(), plain.data(), kCount * sizeof(float)) == 0, "%s: not MPI's bits", what);
    ++expected["passed_through.range"];
  } else {
    for (std::size_t i = 0; i < kCount; ++i) {
      const double got = out[i];
      CHECK(std::abs(got) <= 4.0 * size, "%s: element %zu is %g", what, i, got);
    }
    ++expected["calls"];
  }
}

template <class T>
void all_equal(T value, MPI_Datatype type, bool exactly, const char* what) {
  constexpr int n = kCount + 5;  // another count: no residual of the calls above
  std::vector<T> in(n, value), out(n), plain(n);
  MPI_Allreduce(in.data(), out.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
  check::native_allreduce(in.data(), plain.data(), n, type, MPI_SUM, MPI_COMM_WORLD);
  CHECK(check::identical(out.data(), n * sizeof(T), MPI_COMM_WORLD), "%s", what);
  for (std::size_t i = 0; i < n; ++i)
    CHECK(exactly ? out[i] == plain[i] : std::abs(out[i]) <= T(1e-20), "%s: %g", what, static_cast<double>(out[i]));
}

}  // namespace

int main() {
  check::begin();
  for (int i = 0; i < 12; ++i) call(0, 0, false, "plain");
  const int last = size - 1;
  call(Limits::quiet_NaN(), last, true, "NaN on the last rank");
  call(0, 0, false, "after NaN");
  call(-Limits::infinity(), 0, true, "-Inf on rank 0");
  call(0, 0, false, "after -Inf");
  call(Limits::infinity(), last, true, "Inf on the last rank");
  float payload;  // a NaN with a payload
  const std::uint32_t bits = 0xffc12345;
  std::memcpy(&payload, &bits, sizeof payload);
  call(payload, 0, true, "NaN with payload");
  call(Limits::max(), last, true, "the largest float");
  for (int i = 0; i < 3; ++i) call(-0.0f, 0, false, "after all");

  all_equal(-0.0f, MPI_FLOAT, true, "-0");
  ++expected["calls"];
  // Below a codec's least magnitude MPI adds; fp16 has none, and stands in for 3lc here.
  const bool scaled =
      !std::strcmp(std::getenv("CRIMP_CODEC"), "fp16") || !std::strcmp(std::getenv("CRIMP_CODEC"), "3lc");
  all_equal(Limits::denorm_min(), MPI_FLOAT, true, "subnormal");
  ++expected[scaled ? "calls" : "passed_through.range"];
  all_equal(1e-200, MPI_DOUBLE, true, "a double below float's range");
  all_equal(1e200, MPI_DOUBLE, true, "a double above float's range");
  expected["passed_through.range"] += 2;
  return check::finish();
}
