// CRIMP_CONTROL=delay: codecs change while tensors keep their residuals, and all ranks see the same.
//   delay_control STEPS LEAST_CHANGES LEVEL LADDER     LEVEL: the last one, or any; LADDER: levels, parted by |
#include "check.hpp"
#include "crimp/crimp.h"

using check::expected, check::rank, check::size;

namespace {

constexpr std::size_t kCount = 60000;

std::vector<float> gradient(int of_rank) {
  std::vector<float> g(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    double sum = 0;
    for (unsigned k = 0; k < 6; ++k) sum += check::value(6 * i + k, of_rank, 3);
    g[i] = static_cast<float>(sum);
  }
  return g;
}

// Equal to the bit on all ranks.
void expect_same(const std::vector<float>& x, int step) {
  std::uint64_t hash = 1469598103934665603u;
  for (const float f : x) {
    std::uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    hash = (hash ^ bits) * 1099511628211u;
  }
  std::uint64_t both[2] = {hash, ~hash}, most[2];
  MPI_Allreduce(both, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  CHECK(most[0] == hash && most[1] == ~hash, "step %d", step);
}

}  // namespace

int main(int, char** argv) {
  std::string ladder = argv[4];
  std::replace(ladder.begin(), ladder.end(), '|', ';');
  setenv("CRIMP_LADDER", ladder.c_str(), 1);
  check::begin();
  const int steps = std::atoi(argv[1]);
  const int early = std::strcmp(std::getenv("CRIMP_ALGORITHM"), "auto") ? 0 : 3;  // calls that plain MPI sums
  const std::vector<float> mine = gradient(rank);
  std::vector<double> exact(kCount), total(kCount);
  for (int r = 0; r < size; ++r) {
    const auto g = gradient(r);
    for (std::size_t i = 0; i < kCount; ++i) exact[i] += g[i];
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<float> x = mine;
    const crimp_segment tensor[] = {{"layer.weight", kCount}};
    CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensor, 1) == MPI_SUCCESS);
    expect_same(x, step);
    for (std::size_t i = 0; i < kCount; ++i) total[i] += static_cast<double>(x[i]);
  }
  // What a level holds back the next one sends: the total is the exact one but for what waits at the end, some
  // gradients.
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double e = total[i] / steps - exact[i];
    error += e * e, norm += exact[i] * exact[i];
  }
  if (rank == 0) std::printf("wrong by %.4f of the norm\n", std::sqrt(error / norm));
  CHECK(std::sqrt(error / norm) < 12.0 / steps, "%.4f", std::sqrt(error / norm));
  expected["calls"] = steps - early;
  expected["control.0.changes>"] = std::atoi(argv[2]);
  expected["control.0.classes.0.calls"] = steps - early;
  if (std::strcmp(argv[3], "any")) expected["control.0.classes.0.level"] = std::atoi(argv[3]);
  return check::finish();
}
