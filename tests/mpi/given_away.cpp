// Ranks that share cores: MPI gives the core away whenever it is asked whether an exchange is done (here it sleeps, as
// long as others' time slices are). Encoding and decoding ask so seldom that a ninth of the time goes there at most.
#include <chrono>
#include <thread>

#include "check.hpp"

using check::rank;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kSlice{20};
long turns = 0;

void give_away() {
  ++turns;
  std::this_thread::sleep_for(kSlice);
}

}  // namespace

// In place of MPI's for whoever looks them up, as Crimp does.
extern "C" __attribute__((visibility("default"))) int PMPI_Request_get_status(MPI_Request request, int* done,
                                                                              MPI_Status* status) {
  static const auto next =
      reinterpret_cast<decltype(&PMPI_Request_get_status)>(check::in_libmpi("PMPI_Request_get_status"));
  give_away();
  return next(request, done, status);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Testall(int n, MPI_Request* requests, int* done,
                                                                   MPI_Status* statuses) {
  static const auto next = reinterpret_cast<decltype(&PMPI_Testall)>(check::in_libmpi("PMPI_Testall"));
  give_away();
  return next(n, requests, done, statuses);
}

int main() {
  check::begin();
  constexpr int kCount = 1 << 22, kCalls = 6;
  std::vector<float> values(kCount);
  for (int call = 0; call < kCalls; ++call) {
    for (int i = 0; i < kCount; ++i)
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(check::value(static_cast<std::size_t>(i), rank, static_cast<unsigned>(call)));
    const long before = turns;
    const auto begin = Clock::now();
    CHECK(MPI_Allreduce(MPI_IN_PLACE, values.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    const auto took = Clock::now() - begin;
    // The first one may end a pause that began before the call, and another one must show that it was no work.
    CHECK((turns - before - 2) * 9 * kSlice <= took, "%ld turns", turns - before);
  }
  CHECK(turns > 0, "nothing was asked");
  check::expected["calls"] += kCalls;
  return check::finish();
}
