// Random bits of rounding are independent wherever two encoders may meet: errors then average out.
//   rounding [MOST]     CRIMP_CODEC=terngrad or another that rounds at random, of memory none; 4 ranks. MOST: the
//                       correlation that errors may have, of codecs that also cut values off, which all ranks do alike
#include <crimp/crimp.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr std::size_t kCount = 40000;

// The gradient of the rank with this number in a communicator: no whole numbers, both signs.
std::vector<float> gradient(int number) {
  std::vector<float> x(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    x[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i) + 1.1 * number) * (1 + 0.3 * number));
  return x;
}

std::vector<double> sum_of(int ranks) {
  std::vector<double> sum(kCount);
  for (int r = 0; r < ranks; ++r) {
    const auto x = gradient(r);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(x[i]);
  }
  return sum;
}

// What a sum has too much.
std::vector<float> error_of(const std::vector<float>& got, int ranks) {
  const auto exact = sum_of(ranks);
  std::vector<float> error(kCount);
  for (std::size_t i = 0; i < kCount; ++i) error[i] = static_cast<float>(static_cast<double>(got[i]) - exact[i]);
  return error;
}

double correlation(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y, aa += x * x, bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

double most = 0.05;

// Of equal values summed in so many ways; of independent ones it is about 1 / sqrt(40000).
void independent(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  const double c = correlation(a, b);
  CHECK(std::abs(c) < most, "%s: errors have a correlation of %.3f", what, c);
}

std::vector<float> named(MPI_Comm comm) {
  int number = 0, ranks = 0;
  MPI_Comm_rank(comm, &number);
  MPI_Comm_size(comm, &ranks);
  const auto x = gradient(number);
  std::vector<float> sum(kCount);
  const crimp_segment segment[] = {{"w", kCount}};
  CHECK(crimp_allreduce(x.data(), sum.data(), kCount, CRIMP_FLOAT32, comm, segment, 1) == MPI_SUCCESS);
  ++expected["calls"];
  return error_of(sum, ranks);
}

// The error of the rank with this number in MPI_COMM_WORLD.
std::vector<float> from(int other, std::vector<float> error) {
  MPI_Bcast(error.data(), static_cast<int>(kCount), MPI_FLOAT, other, MPI_COMM_WORLD);
  return error;
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  if (argc > 1) most = std::atof(argv[1]);
  // Two halves of the job, as a trainer that shards within nodes and sums the shards across them.
  MPI_Comm half, pair;
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &pair);
  const auto in_half = named(half), in_pair = named(pair), in_world = named(MPI_COMM_WORLD);
  independent(from(0, in_half), from(2, in_half), "the first calls of two halves");
  independent(in_half, in_pair, "the first calls of a half and of a pair across halves");
  CHECK(correlation(from(0, in_world), from(3, in_world)) > 0.999, "all ranks have one sum");
  independent(in_world, named(MPI_COMM_WORLD), "two calls of one communicator");

  // A sum that does not block is counted apart, and its call has the number of the first one that did.
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  const auto first = named(copy);
  const auto x = gradient(rank);
  std::vector<float> sum(kCount);
  MPI_Request request;
  CHECK(MPI_Iallreduce(x.data(), sum.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, copy, &request) ==
        MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  ++expected["calls"];
  independent(first, error_of(sum, size), "a sum that blocks and one that does not");
  for (MPI_Comm* comm : {&half, &pair, &copy}) MPI_Comm_free(comm);
  return check::finish();
}
