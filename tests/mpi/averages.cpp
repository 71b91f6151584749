// A training that names no tensors and beside its gradient sums what goes on where an earlier sum ended: parameters
// that ranks have changed a little since they were averaged, as many as the gradient has elements, and of five equal
// layers; and signed values that ranks put in places of their own, zeros elsewhere. From their second call on all these
// are MPI's own, and the gradient is known all the same.
#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr int kSteps = 40;
constexpr std::size_t kCount = 200 * 200, kLayer = 30000, kPieces = 50000, kLayers = 5;

using Vector = std::vector<float>;

// `exactly`: else as the first call of all, in 16 bits or by a codec that keeps no residuals.
Vector sum(const char* what, int step, const Vector& in, bool exactly) {
  Vector out(in.size()), plain(in.size());
  CHECK(MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
        MPI_SUCCESS);
  check::native_allreduce(in.data(), plain.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (exactly) {
    CHECK(out == plain, "%s, step %d", what, step);
    ++expected["passed_through.no_gradient"];
  } else {
    const float allowed = std::strncmp(std::getenv("CRIMP_CODEC"), "qsgd", 4) ? 0.01f : 0.5f;
    for (std::size_t i = 0; i < in.size(); ++i)
      CHECK(std::abs(out[i] - plain[i]) < allowed, "%s, step %d: %g, not %g", what, step, static_cast<double>(out[i]),
            static_cast<double>(plain[i]));
    ++expected["calls"];
  }
  return out;
}

double norm(const Vector& of, const Vector& without) {
  double sum = 0;
  for (std::size_t i = 0; i < of.size(); ++i) sum += std::pow(static_cast<double>(of[i] - without[i]), 2);
  return std::sqrt(sum);
}

// What a rank makes of the average: some steps of its own.
void train(Vector& parameters, unsigned salt) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i] += static_cast<float>(0.05 * check::value(i, rank, salt));
}

}  // namespace

int main() {
  check::begin();
  Vector parameters(kCount);
  std::vector<Vector> layers(kLayers, Vector(kLayer));
  for (std::size_t i = 0; i < kCount; ++i) parameters[i] = static_cast<float>(check::value(i, 50));
  for (std::size_t l = 0; l < kLayers; ++l)
    for (std::size_t i = 0; i < kLayer; ++i)
      layers[l][i] = static_cast<float>(check::value(i, 60 + static_cast<int>(l)));
  double sent = 0, lost = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto salt = static_cast<unsigned>(10 * (1 + step));
    Vector gradient(kCount), whole(kCount), out(kCount), pieces(kPieces);
    for (std::size_t i = 0; i < kCount; ++i)
      gradient[i] = static_cast<float>(check::value(i, rank) + 0.2 * check::value(i, rank, salt));
    MPI_Allreduce(gradient.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check::native_allreduce(gradient.data(), whole.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (step >= kSteps / 2) sent += norm(whole, Vector(kCount)), lost += norm(whole, out);
    ++expected["calls"];

    const auto average = [&](const char* what, Vector& of, unsigned salted) {
      train(of, salted);
      of = sum(what, step, of, step > 0);
      for (float& w : of) w /= static_cast<float>(size);
    };
    average("parameters", parameters, salt);
    for (std::size_t l = 0; l < kLayers; ++l) average("a layer", layers[l], salt + 1 + static_cast<unsigned>(l));

    const std::size_t begin = kPieces * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size),
                      end = kPieces * static_cast<std::size_t>(rank + 1) / static_cast<std::size_t>(size);
    for (std::size_t i = begin; i < end; ++i) pieces[i] = static_cast<float>(check::value(i, rank, salt + 7));
    sum("pieces", step, pieces, step > 0);
  }
  CHECK(lost > 0.01 * sent, "the gradient is not compressed by the codec: %.3g of %.3g", lost, sent);
  return check::finish();
}
