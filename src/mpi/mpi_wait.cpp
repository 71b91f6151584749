#include "mpi/mpi_wait.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace crimp {

constinit thread_local bool waits_asleep = false;

void Sleeps::sleep() {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kLeast{50'000}, kMost{1'000'000};
  const nanoseconds waited = Clock::now() - begun_;
  const timespec time{0, std::clamp(waited / 8, kLeast, kMost).count()};
  ::nanosleep(&time, nullptr);
}

int wait_quietly(MPI_Request& request) {
  if (!waits_asleep) return PMPI_Wait(&request, MPI_STATUS_IGNORE);
  Sleeps sleeps;
  int rc = MPI_SUCCESS;
  for (int done = 0; rc == MPI_SUCCESS && !done; sleeps.sleep()) {
    stand_aside();
    rc = PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) break;
  }
  stand_aside();
  return rc;
}

int thread_level() {
  static const int level = [] {
    int provided = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&provided);
    return provided;
  }();
  return level;
}

bool many_threads() { return thread_level() == MPI_THREAD_MULTIPLE; }

}  // namespace crimp
