// A training that names no tensors and beside its gradient sums what is none: a confusion matrix of the gradient's
// length, indices that each rank puts in places of its own, sums of squares. All these are MPI's own, from the first
// step to the last, and the gradient is known all the same; a loss and a count of samples behind it are exact.
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
  ++expected["passed_through.no_gradient"];
}

double norm(const std::vector<float>& of, const std::vector<float>& without) {
  double sum = 0;
  for (std::size_t i = 0; i < of.size(); ++i) sum += std::pow(static_cast<double>(of[i] - without[i]), 2);
  return std::sqrt(sum);
}

}  // namespace

// Until the gradient is known it has 16 bits; with `codec` the codec's few from the first step on, which keeps
// no residuals.
int main(int argc, char** argv) {
  check::begin();
  const bool codec = argc > 1 && std::strcmp(argv[1], "codec") == 0;
  const bool one_rank_counts = std::getenv("ONE_RANK_COUNTS");  // the others' matrices are empty
  double sent = 0, lost = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto salt = static_cast<unsigned>(1 + step);
    std::vector<float> gradient(kCount), matrix(kCount), indices(kCount + 1), squares(kSquares), out(kCount),
        sparse(1 << 16);
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

    for (std::uint64_t i = 0; i < 30; ++i)  // hardly seen by whoever looks at some values only
      sparse[check::random_bits(i, 5) % sparse.size()] = static_cast<float>(check::random_bits(i, salt) % 1000000);
    gradient[kCount - 3] = 650 / (1 + 0.1f * static_cast<float>(step));
    gradient[kCount - 2] = 900 + static_cast<float>(step + rank);
    gradient[kCount - 1] = 1000;

    MPI_Allreduce(gradient.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    std::vector<float> whole(kCount);
    check::native_allreduce(gradient.data(), whole.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (std::size_t i = kCount - 3; i < kCount; ++i)
      CHECK(std::abs(out[i] - whole[i]) <= (step >= 10 ? 1e-6f
                                            : codec    ? 5e-2f
                                                       : 1e-3f) *
                                               whole[i],
            "step %d: %g, not %g", step, static_cast<double>(out[i]), static_cast<double>(whole[i]));
    if (step >= kSteps / 2) {
      std::fill_n(out.rbegin(), 3, 0.0f), std::fill_n(whole.rbegin(), 3, 0.0f);
      sent += norm(whole, std::vector<float>(kCount)), lost += norm(whole, out);
    }
    exact("matrix", step, matrix);
    exact("indices", step, indices);
    exact("squares", step, squares);
    exact("sparse", step, sparse);
    ++expected["calls"];
  }
  CHECK(lost > (codec ? 0.002 : 0.05) * sent, "the gradient is not compressed by the codec: %.3g of %.3g", lost, sent);
  return check::finish();
}
