// MPI's C++ bindings, which MPI 3 has taken out and Debian's Open MPI still has.
#include <mpi.h>

#include <cmath>
#include <vector>

int main() {
  MPI::Init();
  const int rank = MPI::COMM_WORLD.Get_rank(), size = MPI::COMM_WORLD.Get_size();
  std::vector<float> in(100000, static_cast<float>(rank + 1) / 3), sum(in.size());
  MPI::COMM_WORLD.Allreduce(in.data(), sum.data(), static_cast<int>(in.size()), MPI::FLOAT, MPI::SUM);
  bool good = true;
  for (const float s : sum) good = good && std::fabs(s - static_cast<float>(size * (size + 1)) / 6) < 1e-2f;
  MPI::Finalize();
  return good ? 0 : 1;
}
