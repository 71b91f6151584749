// Sums before which one rank sleeps, for late.py:
//   late RANK MILLISECONDS CALLS [nonblocking]     sums of two counts in turn
// Prints how long each rank slept.
#include <chrono>
#include <thread>

#include "check.hpp"

namespace {

using Seconds = std::chrono::duration<double>;

double sleep_ms(int ms) {
  const auto begin = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int late = argc > 1 ? std::atoi(argv[1]) : 0, ms = argc > 2 ? std::atoi(argv[2]) : 0;
  const int calls = argc > 3 ? std::atoi(argv[3]) : 0;
  const bool nonblocking = argc > 4;
  check::begin(nonblocking ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  double slept_s = 0;
  const int counts[] = {40000, 60000};
  std::vector<float> in[2], out[2];
  for (int i = 0; i < 2; ++i) in[i].assign(static_cast<std::size_t>(counts[i]), 1), out[i].resize(in[i].size());
  const auto right = [&](int i) { CHECK(std::abs(out[i][0] - static_cast<float>(check::size)) < 0.01f); };
  MPI_Request requests[2];
  for (int call = 0; call < calls; ++call) {
    if (check::rank == late) slept_s += sleep_ms(ms);
    if (nonblocking) {
      for (int i = 0; i < 2; ++i)
        MPI_Iallreduce(in[i].data(), out[i].data(), counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      right(0), right(1);
    } else {
      const int i = call % 2;
      MPI_Allreduce(in[i].data(), out[i].data(), counts[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      right(i);
    }
  }
  std::printf("slept %d %.9f\n", check::rank, slept_s);
  return check::finish();
}
