#include "mpi/mpi_clock.hpp"

#include <array>
#include <string>
#include <utility>

#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/private_world.hpp"

namespace crimp {
namespace {

constexpr int kRounds = 16, kTag = 0;

// While it lives this thread leaves its core to others where it waits.
class Asleep {
 public:
  Asleep() : before_(std::exchange(waits_asleep, true)) {}
  ~Asleep() { waits_asleep = before_; }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  const bool before_;
};

}  // namespace

void MpiClock::open(int rank, int size) {
  rank_ = rank, size_ = size;
  line_.origin_ns = nanoseconds(Clock::now());
  if (size == 1) return;
  check_private(PMPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  compare(line_.first, "in MPI_Init");
}

void MpiClock::compare_again() {
  if (comm_ != MPI_COMM_NULL) compare(line_.last, "in MPI_Finalize");
}

void MpiClock::close() {
  if (comm_ != MPI_COMM_NULL) PMPI_Comm_free(&comm_);
}

void MpiClock::compare(std::optional<ClockSample>& best, const char* where) {
  const auto wait = [&](MPI_Request& request, int other) {
    wait_private(request, rank_, size_, [&] {
      return std::string(where) + " for rank " + std::to_string(other) + " to compare clocks for CRIMP_TRACE";
    });
  };
  using Answer = std::array<std::int64_t, 2>;  // the time there; the time called 0
  const auto send = [&](const Answer& what, int other) {
    MPI_Request request;
    check_private(PMPI_Isend(what.data(), 2, MPI_INT64_T, other, kTag, comm_, &request), "MPI_Isend");
    wait(request, other);
  };
  const auto receive = [&](int other) {
    Answer what{};
    MPI_Request request;
    check_private(PMPI_Irecv(what.data(), 2, MPI_INT64_T, other, kTag, comm_, &request), "MPI_Irecv");
    wait(request, other);
    return what;
  };
  if (rank_ == 0) {
    for (int other = 1; other < size_; ++other) {
      send({}, other);
      for (int round = 0; round < kRounds; ++round) {
        receive(other);
        send({nanoseconds(Clock::now()), line_.origin_ns}, other);
      }
    }
    best = ClockSample{nanoseconds(Clock::now()), 0, 0};
    return;
  }
  {  // until its turn comes
    const Asleep asleep;
    receive(0);
  }
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t asked = nanoseconds(Clock::now());
    send({}, 0);
    const Answer answer = receive(0);
    ClockSample::keep_better(best, ClockSample::of(asked, answer[0], nanoseconds(Clock::now())));
    line_.origin_ns = answer[1];
  }
}

}  // namespace crimp
