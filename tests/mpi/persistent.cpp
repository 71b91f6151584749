// Persistent sums whose residuals wait: CRIMP_CODEC is one with a residual that rounds at random.
//   persistent drawn   of memory none: each start draws its own random numbers, so that what rounding adds averages out
#include "persistent.hpp"
#include "check.hpp"

using check::rank, check::size;

namespace {

constexpr std::size_t kCount = 20000;

struct Sum {
  Sum() {
    CHECK(check::allreduce_init(in.data(), out.data(), kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                                &request) == MPI_SUCCESS);
  }
  ~Sum() { MPI_Request_free(&request); }
  std::vector<double> in = std::vector<double>(kCount), out = in, total = in;
  MPI_Request request;
};

// In an order of its own on every rank.
void step(Sum (&sums)[2]) {
  for (const int i : {rank % 2, 1 - rank % 2}) CHECK(MPI_Start(&sums[i].request) == MPI_SUCCESS);
  for (Sum& sum : sums) {
    CHECK(MPI_Wait(&sum.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (std::size_t i = 0; i < kCount; ++i) sum.total[i] += sum.out[i];
    ++check::expected["calls"];
  }
}

// Two sums of the same values. What the first step holds back comes later, though a rank has zeros then and the others
// values in another unit, float64's below 2^-100: in the end nothing is missing.
void owed() {
  Sum sums[2];
  const auto set = [&](double unit) {
    for (Sum& sum : sums)
      for (std::size_t i = 0; i < kCount; ++i) sum.in[i] = unit * check::value(i, rank);
  };
  set(1);
  step(sums);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < kCount; ++i) differ += sums[0].out[i] != sums[1].out[i];
  CHECK(differ > kCount / 10, "two sums draw the same random numbers: only %zu elements differ", differ);
  set(rank == 0 ? 0 : 0x1p-130);
  step(sums);
  set(0);
  for (int i = 0; i < 10; ++i) step(sums);
  for (const Sum& sum : sums)
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (int r = 0; r < size; ++r) exact += check::value(i, r);
      CHECK(std::abs(sum.total[i] - exact) < 1e-4, "element %zu: %.9g, not %.9g", i, sum.total[i], exact);
    }
}

// Rounding at random leaves its error's expectation at zero, which starts that all round alike keep as it is: of so
// many independent ones the mean is off by a fourth.
void drawn() {
  constexpr int kStarts = 16;
  Sum sums[2];
  for (Sum& sum : sums)
    for (std::size_t i = 0; i < kCount; ++i) sum.in[i] = check::value(i, rank);
  const auto off = [](const std::vector<double>& got, int starts) {
    double squares = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (int r = 0; r < size; ++r) exact += check::value(i, r);
      squares += std::pow(got[i] / starts - exact, 2);
    }
    return std::sqrt(squares);
  };
  step(sums);
  const double first = off(sums[0].total, 1);
  for (int i = 1; i < kStarts; ++i) step(sums);
  const double mean = off(sums[0].total, kStarts);
  CHECK(first > 0 && mean < 0.4 * first, "the mean of %d starts is off by %.3g, one of them by %.3g", kStarts, mean,
        first);
}

// Of equal values, and each a communicator's first, a sum that does not block draws other numbers than one that does.
void apart() {
  MPI_Comm reversed;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  std::vector<double> in(kCount), blocking(kCount), other(kCount);
  for (std::size_t i = 0; i < kCount; ++i) in[i] = check::value(i, rank);
  CHECK(MPI_Allreduce(in.data(), blocking.data(), kCount, MPI_DOUBLE, MPI_SUM, reversed) == MPI_SUCCESS);
  MPI_Request request;
  CHECK(MPI_Iallreduce(in.data(), other.data(), kCount, MPI_DOUBLE, MPI_SUM, reversed, &request) == MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < kCount; ++i) differ += blocking[i] != other[i];
  CHECK(differ > kCount / 10, "only %zu elements differ", differ);
  check::expected["calls"] += 2;
  MPI_Comm_free(&reversed);
}

}  // namespace

int main(int argc, char**) {
  check::begin();
  if (!check::kPersistent) {
    std::puts("skipped: this MPI has no persistent collectives");
    MPI_Finalize();
    return check::kSkipped;
  }
  if (argc == 1) owed();
  else drawn(), apart();
  return check::finish();
}
