// MPI_Init, MPI_Init_thread, MPI_Finalize, MPI_Pcontrol.
#include "core/log.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "mpi/runtime.hpp"
#include "next.hpp"
#include "progress.hpp"
#include "self_check.hpp"

namespace crimp {
namespace {

// MPI implementations and tools call MPI functions while they initialize; ReentrancyGuard keeps us out of those.
template <class Initialize>
int start(const NextMpi& next, Initialize initialize) {
  if (inside(next)) return initialize();
  int rc;
  {
    const ReentrancyGuard here;
    rc = initialize();
  }
  if (rc != MPI_SUCCESS) return rc;
  return guard(MPI_COMM_WORLD, [] {
    Runtime::get().start(true);
    check_at_start();
    open_lanes();
    return MPI_SUCCESS;
  });
}

int init(const NextMpi& next, int* argc, char*** argv) {
  return start(next, [&] {
    int provided = 0;
    return asks_for_threads() ? next.Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) : next.Init(argc, argv);
  });
}

int init_thread(const NextMpi& next, int* argc, char*** argv, int required, int* provided) {
  return start(next, [&] {
    return next.Init_thread(argc, argv, asks_for_threads() ? MPI_THREAD_MULTIPLE : required, provided);
  });
}

int finalize(const NextMpi& next) {
  if (inside(next)) return next.Finalize();
  {
    const ReentrancyGuard here;
    // A failure to report is logged, never a reason not to finalize and never one for the program's error handler.
    logged("what was seen of Horovod", [] { horovod::Observer::get().finish(); });
    logged("what sums that do not block leave", [] { close_lanes(); });
    Runtime::get().finish();
  }
  const ReentrancyGuard handed_on(next);
  return next.Finalize();
}

// 0 switches compression off, 1 on, from the next call on this rank; all ranks do it between the same calls. Other
// levels are not ours.
int pcontrol(const NextMpi& next, int level) {
  if (!inside(next) && (level == 0 || level == 1))
    Runtime::get().switched_on.store(level == 1, std::memory_order_relaxed);
  return next.Pcontrol(level);
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Init, init, (int* argc, char*** argv), argc, argv)
CRIMP_EXPORT(Init_thread, init_thread, (int* argc, char*** argv, int required, int* provided), argc, argv, required,
             provided)
CRIMP_EXPORT(Finalize, finalize, (void))
CRIMP_EXPORT(Pcontrol, pcontrol, (const int level, ...), level)
