#include "mpi/mpi_wait.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <string>

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

std::string name_of(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return length ? name : "a communicator without a name";
}

std::string call_text(const AllreduceRequest& request) {
  return name_of(request.collective()) + std::string(" of ") + std::to_string(request.count) + " x " +
         name_of(request.dtype);
}

std::string absence_text(std::uint64_t min_count) {
  return "Likely a rank runs without Crimp, gives fewer than CRIMP_MIN_COUNT=" + std::to_string(min_count) +
         " elements, another type or another operation, was switched off by MPI_Pcontrol(0), or is late or dead";
}

}  // namespace crimp
