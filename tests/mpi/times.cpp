// Sums whose times the program takes itself, for times.py to compare with the report's: two counts that are compressed
// or tried, and one below CRIMP_MIN_COUNT.
//   times CALLS [COMPRESSED]     expects that so many are
#include <chrono>

#include "check.hpp"

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 0;
  check::begin();
  MPI_Comm own;  // freed before the end
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  for (const int count : {40000, 300000, 10}) {
    std::vector<float> in(static_cast<std::size_t>(count), 1.0f), out(in.size());
    double s = 0;
    for (int call = 0; call < calls; ++call) {
      const auto begin = std::chrono::steady_clock::now();
      MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, call % 2 ? own : MPI_COMM_WORLD);
      s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      CHECK(std::abs(out[0] - static_cast<float>(check::size)) < 0.01f);
    }
    std::printf("took %d %d %d %.9f\n", check::rank, count, calls, s);
  }
  if (argc > 2) check::expected["calls"] = std::atoi(argv[2]);
  MPI_Comm_free(&own);
  return check::finish();
}
