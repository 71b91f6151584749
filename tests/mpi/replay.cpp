// A training whose results say what Crimp decided: gradients follow from weights, and these from all sums before. Ranks
// are late as SLOW says (slow.c). Each rank prints the digest of all its results; tests/mpi/replay.py compares jobs.
//   replay STEPS
#include <unistd.h>

#include <functional>

#include "check.hpp"
#include "crimp/crimp.h"

namespace {

struct Tensor {
  std::vector<float> weights, gradient;
  unsigned salt;
  Tensor(std::size_t count, unsigned s) : weights(count), gradient(count), salt(s) {}
  void backward(int step) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      gradient[i] =
          static_cast<float>(check::value(i, check::rank, salt)) + 0.1f * weights[i] +
          0.05f * static_cast<float>(check::value(i, check::rank, salt + 1000u * static_cast<unsigned>(step + 1)));
  }
  void update() {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.1f * gradient[i];
  }
};

std::uint64_t digest = 1469598103934665603u;
void note(const std::vector<float>& x) {
  for (const float f : x) {
    std::uint32_t bits;
    std::memcpy(&bits, &f, sizeof bits);
    digest = (digest ^ bits) * 1099511628211u;
  }
}

void be_late(int call) {
  const char* const slow = std::getenv("SLOW");
  if (!slow) return;
  const auto salt = static_cast<unsigned>(std::atoi(slow) * 64 + check::rank);
  usleep(static_cast<unsigned>(check::random_bits(static_cast<std::uint64_t>(call), salt) % 1500));
}

void sum(Tensor& tensor, MPI_Comm comm) {
  CHECK(MPI_Allreduce(MPI_IN_PLACE, tensor.gradient.data(), static_cast<int>(tensor.gradient.size()), MPI_FLOAT,
                      MPI_SUM, comm) == MPI_SUCCESS);
}

void sum_named(Tensor& tensor, const std::vector<crimp_segment>& segments, MPI_Comm comm) {
  CHECK(crimp_allreduce(MPI_IN_PLACE, tensor.gradient.data(), tensor.gradient.size(), CRIMP_FLOAT32, comm,
                        segments.data(), segments.size()) == MPI_SUCCESS);
}

}  // namespace

int main(int, char** argv) {
  check::begin();
  const int steps = std::atoi(argv[1]);
  MPI_Comm half, brief;
  MPI_Comm_split(MPI_COMM_WORLD, check::rank / 2, 0, &half);
  MPI_Comm_dup(MPI_COMM_WORLD, &brief);
  Tensor named(60000, 1), fused(130000, 2), unnamed(30000, 3), halves(20000, 4), duplicates(25000, 5);
  const std::pair<Tensor*, std::function<void()>> calls[] = {
      {&named,
       [&] {
         sum_named(named, {{"layer.weight", 60000}}, MPI_COMM_WORLD);
       }},
      {&fused,
       [&] {
         sum_named(fused, {{"a.weight", 120000}, {"a.bias", 10000}}, MPI_COMM_WORLD);
       }},
      {&unnamed, [&] { sum(unnamed, MPI_COMM_WORLD); }},
      {&halves,
       [&] {
         sum_named(halves, {{"h.weight", 20000}}, half);
       }},
      {&duplicates,
       [&] {
         sum_named(duplicates, {{"d.weight", 25000}}, brief);
       }},
  };
  int call = 0;
  for (int step = 0; step < steps; ++step) {
    if (step % 10 == 9) {
      MPI_Comm_free(&brief);
      MPI_Comm_dup(MPI_COMM_WORLD, &brief);
    }
    for (const auto& [tensor, allreduce] : calls) {
      tensor->backward(step);
      be_late(call++);
      allreduce();
      note(tensor->gradient);
      tensor->update();
    }
  }
  std::printf("digest %d %016llx\n", check::rank, static_cast<unsigned long long>(digest));
  std::fflush(stdout);
  MPI_Comm_free(&half);
  MPI_Comm_free(&brief);
  return check::finish();
}
