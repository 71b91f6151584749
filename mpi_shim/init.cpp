// MPI_Init, MPI_Init_thread, MPI_Finalize, MPI_Pcontrol.
#include <cstdarg>

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
  check_caller();  // ahead of MPI, which may not come back
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
void pcontrol(const NextMpi& next, int level) {
  if (!inside(next) && (level == 0 || level == 1))
    Runtime::get().switched_on.store(level == 1, std::memory_order_relaxed);
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Init, init, (int* argc, char*** argv), argc, argv)
CRIMP_EXPORT(Init_thread, init_thread, (int* argc, char*** argv, int required, int* provided), argc, argv, required,
             provided)
CRIMP_EXPORT(Finalize, finalize, (void))

// A tool behind us may have more of the program, as the name of a region: pointers and integers, as many as travel in
// registers, whether they were given or not. Nobody knows how many there are.
#define CRIMP_EXPORT_PCONTROL(symbol, next, behind)                                                         \
  extern "C" __attribute__((visibility("default"))) int symbol(const int level, ...) {                      \
    va_list list;                                                                                           \
    va_start(list, level);                                                                                  \
    void* more[5];                                                                                          \
    for (void*& of : more) of = va_arg(list, void*);                                                        \
    va_end(list);                                                                                           \
    crimp::entered = __builtin_frame_address(0);                                                            \
    if (!__builtin_expect(crimp::other_mpi, false)) crimp::pcontrol(next, level);                           \
    return (crimp::other_mpi ? behind : next).Pcontrol(level, more[0], more[1], more[2], more[3], more[4]); \
  }
CRIMP_EXPORT_PCONTROL(MPI_Pcontrol, crimp::next_mpi(), crimp::behind_mpi)
CRIMP_EXPORT_PCONTROL(PMPI_Pcontrol, crimp::next_pmpi(), crimp::behind_pmpi)
