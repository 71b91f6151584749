// The calls of PyTorch's mpi backend: MPI_THREAD_SERIALIZED, every MPI_Allreduce in place and blocking from a thread of
// its own, buckets that are cut anew after the first step, MPI_Finalize from an exit handler. The gradients are one
// flat buffer in step 0.
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kCount = 200000;
int rank, size;
bool good = true;

void reduce(float* values, int count) {
  MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void step(int number) {
  std::vector<float> gradients(kCount, static_cast<float>(rank + 1) / 3);
  const int buckets = number == 0 ? 1 : number == 1 ? 2 : 4;
  std::thread worker([&] {
    for (int b = 0; b < buckets; ++b) reduce(gradients.data() + kCount / buckets * b, kCount / buckets);
  });
  worker.join();
  for (const float g : gradients) good = good && std::fabs(g - static_cast<float>(size * (size + 1)) / 6) < 1e-2f;
}

}  // namespace

int main() {
  int provided;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::atexit([] { MPI_Finalize(); });
  for (int number = 0; number < 6; ++number) step(number);
  if (!good) std::fprintf(stderr, "rank %d: a sum is wrong\n", rank);
  return good ? 0 : 1;
}
