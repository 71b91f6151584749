// A training that names no tensors and beside its gradient sums what is none: a confusion matrix of the gradient's
// length, indices that each rank puts in places of its own, sums of squares. Whole numbers are MPI's own, from the
// first step to the last; squares are 16 bits' at the least, and the gradient is known all the same.
#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr int kSteps = 40;
constexpr std::size_t kCount = 200 * 200, kSquares = 30000;

void exact(const char* what, int step, const std::vector<float>& in) {
  std::vector<float> out(in.size()), plain(in.size());
  CHECK(MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
        MPI_SUCCESS);
  check::native_allreduce(in.data(), plain.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(out == plain, "%s, step %d", what, step);
  ++expected["passed_through.counts"];
}

double norm(const std::vector<float>& of, const std::vector<float>& without) {
  double sum = 0;
  for (std::size_t i = 0; i < of.size(); ++i) sum += std::pow(static_cast<double>(of[i] - without[i]), 2);
  return std::sqrt(sum);
}

}  // namespace

int main() {
  check::begin();
  const bool one_rank_counts = std::getenv("ONE_RANK_COUNTS");  // the others' matrices are empty
  double sent = 0, lost = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto salt = static_cast<unsigned>(1 + step);
    std::vector<float> gradient(kCount), matrix(kCount), indices(kCount + 1), squares(kSquares), out(kCount),
        sum(kSquares), plain(kSquares);
    for (std::size_t i = 0; i < kCount; ++i) {
      gradient[i] = static_cast<float>(check::value(i, rank) + 0.2 * check::value(i, rank, salt));
      const double hits =
          (i / 200 == i % 200 ? 90000 : 300) * (1 + check::value(i, 7) + 0.1 * check::value(i, rank, salt));
      if (!one_rank_counts || rank == size - 1) matrix[i] = static_cast<float>(std::floor(std::max(0.0, hits)));
    }
    for (std::size_t i = static_cast<std::size_t>(rank); i < indices.size(); i += static_cast<std::size_t>(size))
      indices[i] = static_cast<float>(1 + check::random_bits(i, 3) % 10000000);
    for (std::size_t i = 0; i < kSquares; ++i)
      squares[i] = static_cast<float>(std::pow(check::value(i, 9) + 0.1 * check::value(i, rank, salt), 2));

    MPI_Allreduce(gradient.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (step >= kSteps / 2) {
      std::vector<float> whole(kCount);
      check::native_allreduce(gradient.data(), whole.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      sent += norm(whole, std::vector<float>(kCount)), lost += norm(whole, out);
    }
    exact("matrix", step, matrix);
    exact("indices", step, indices);
    MPI_Allreduce(squares.data(), sum.data(), kSquares, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check::native_allreduce(squares.data(), plain.data(), kSquares, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(norm(plain, sum) <= 1e-3 * norm(plain, std::vector<float>(kSquares)), "squares, step %d", step);
    expected["calls"] += 2;
  }
  CHECK(lost > 0.05 * sent, "the gradient is not compressed by the codec: %.3g of %.3g", lost, sent);
  return check::finish();
}
