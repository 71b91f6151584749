// MPI_Allreduce_c of more elements than crimp_faults lets one of MPI's calls with an int have
// (CRIMP_FAULT=short_counts), where rank 0's process alone uses CUDA: its values are on the device, then on the host
// again.
#include <cuda_runtime.h>

#include "check.hpp"

int main() {
  check::begin();
#if MPI_VERSION >= 4
  constexpr int kCount = 20001;
  constexpr std::size_t kBytes = kCount * sizeof(int);
  const int n = check::size;
  void* device = nullptr;
  if (check::rank == 0) CHECK(cudaMalloc(&device, kBytes) == cudaSuccess);
  for (const bool on_device : {true, false}) {
    std::vector<int> values(kCount);
    for (int i = 0; i < kCount; ++i) values[i] = check::rank + i;
    void* const buffer = on_device && device ? device : values.data();
    if (buffer == device) CHECK(cudaMemcpy(device, values.data(), kBytes, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(MPI_Allreduce_c(MPI_IN_PLACE, buffer, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    if (buffer == device) CHECK(cudaMemcpy(values.data(), device, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (int i = 0; i < kCount && check::failures < 3; ++i)
      CHECK(values[i] == n * (n - 1) / 2 + n * i, "element %d is %d", i, values[i]);
  }
  check::expected["passed_through.type"] = 2;
  return check::finish();
#else
  if (check::rank == 0) std::puts("skipped: this MPI has no MPI_Allreduce_c");
  MPI_Finalize();
  return check::kSkipped;
#endif
}
