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
  std::vector<double> missing = {};
  int calls = 0;
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

MPI_Comm brief_comm = MPI_COMM_NULL;  // whose residuals end with it
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

// Under NEAR=N, from a tensor's N-th call on: of the exact sums of all its calls so far nothing is missing but what
// fp16 rounds in the last one, of each rank's values and of the sum.
void check_near(Tensor& tensor, const std::vector<float>& reference) {
  const bool checked = ++tensor.calls >= std::atoi(std::getenv("NEAR"));
  tensor.missing.resize(reference.size());
  double largest = 1;
  for (const float f : reference) largest = std::max(largest, static_cast<double>(std::abs(f)));
  for (std::size_t i = 0; i < reference.size(); ++i) {
    tensor.missing[i] += static_cast<double>(reference[i]) - static_cast<double>(tensor.gradient[i]);
    CHECK(!checked || std::abs(tensor.missing[i]) <= (check::size + 1) * 0x1p-9 * largest,
          "in call %d element %zu is %.9g, not %.9g", tensor.calls, i, static_cast<double>(tensor.gradient[i]),
          static_cast<double>(reference[i]));
  }
}

void sum_named(Tensor& tensor, const std::vector<crimp_segment>& segments, MPI_Comm comm) {
  std::vector<float> reference(tensor.gradient.size());
  const bool near = std::getenv("NEAR") && segments.size() == 1 && comm != brief_comm;
  if (near)
    check::native_allreduce(tensor.gradient.data(), reference.data(), static_cast<int>(reference.size()), MPI_FLOAT,
                            MPI_SUM, comm);
  CHECK(crimp_allreduce(MPI_IN_PLACE, tensor.gradient.data(), tensor.gradient.size(), CRIMP_FLOAT32, comm,
                        segments.data(), segments.size()) == MPI_SUCCESS);
  if (near) check_near(tensor, reference);
}

}  // namespace

int main(int, char** argv) {
  check::begin();
  const int steps = std::atoi(argv[1]);
  MPI_Comm half;
  MPI_Comm& brief = brief_comm;
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
