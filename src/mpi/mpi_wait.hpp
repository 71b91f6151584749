// Waiting for MPI, with a line where it takes too long (core/stall.hpp). Everything that a rank waits for before it
// knows that the others take part must wait here, so it starts as a non-blocking call.
#pragma once
#include <mpi.h>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/stall.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/mpi_error.hpp"

namespace crimp {

int thread_level();   // as MPI_Query_thread says
bool many_threads();  // MPI_THREAD_MULTIPLE

// Of this thread: it waits beside the program's computing, and what waits by asking again and again takes whole time
// slices from that where cores are few. So it sleeps between its questions, longer the longer it has waited: each one
// takes a core from the program.
extern constinit thread_local bool waits_asleep;
class Sleeps {
 public:
  void sleep();

 private:
  Clock::time_point begun_ = Clock::now();
};

// As MPI_Wait; the status is ignored. `what` as StallWatch::look(). Throws Error{transport_failed}.
template <class What>
void wait_for(MPI_Request& request, int rank, int size, const What& what) {
  if (waits_asleep) {
    StallWatch watch;
    Sleeps sleeps;
    for (int done = 0;;) {
      stand_aside();
      check_mpi(PMPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return stand_aside();
      sleeps.sleep();
      watch.look(rank, size, what);
    }
  }
  // Where several threads wait, Open MPI lets all but one sleep in MPI_Wait; in a loop all would spin. What short waits
  // are for nobody asks.
  if (many_threads()) {
    constexpr int kShort = 16;
    for (int turn = 0, done = 0; turn < kShort; ++turn) {
      check_mpi(PMPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
    }
    const StallGuard guard(rank, size, what);
    check_mpi(PMPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    return;
  }
  StallWatch watch;
  int done = 0;
  for (unsigned turn = 0;; ++turn) {
    check_mpi(PMPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");  // yields where MPI_Wait would
    if (done) return;
    if (turn % 16 == 0) watch.look(rank, size, what);
  }
}

// The same on a communicator of Crimp's own: what it throws is without an MPI code, as check_private()'s.
template <class What>
void wait_private(MPI_Request& request, int rank, int size, const What& what) {
  try {
    wait_for(request, rank, size, what);
  } catch (const Error& e) {
    throw Error(e.code(), e.what());
  }
}

// As MPI_Wait, its error code too, and without a line; asleep where this thread's waits are.
int wait_quietly(MPI_Request&);

}  // namespace crimp
