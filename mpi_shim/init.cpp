// MPI_Init, MPI_Init_thread, MPI_Finalize, MPI_Pcontrol.
#include "mpi/runtime.hpp"
#include "core/log.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "next.hpp"
#include "self_check.hpp"

namespace crimp {
namespace {

// MPI implementations and tools call MPI functions while they initialize; Inside keeps us out of those.
template <class Initialize>
int init(const Next& next, Initialize initialize) {
  if (inside(next)) return initialize();
  int rc;
  {
    const Inside here;
    rc = initialize();
  }
  if (rc != MPI_SUCCESS) return rc;
  return guard(MPI_COMM_WORLD, [] {
    Runtime::get().start(true);
    check_at_start();
    return MPI_SUCCESS;
  });
}

int finalize(const Next& next) {
  if (inside(next)) return next.Finalize();
  {
    const Inside here;
    // A failure to report is logged, never a reason not to finalize and never one for the program's error handler.
    logged("what was seen of Horovod", [] { horovod::Observer::get().finish(); });
    Runtime::get().finish();
  }
  const Inside handed_on(next);
  return next.Finalize();
}

// 0 switches compression off, 1 on, from the next call on this rank; all ranks do it between the same calls. Other levels are not ours.
int pcontrol(const Next& next, int level) {
  if (!inside(next) && (level == 0 || level == 1)) Runtime::get().switched_on.store(level == 1, std::memory_order_relaxed);
  return next.Pcontrol(level);
}

}  // namespace
}  // namespace crimp

extern "C" {
#define CRIMP_EXPORT __attribute__((visibility("default")))
using namespace crimp;

CRIMP_EXPORT int MPI_Init(int* argc, char*** argv) {
  return init(next_mpi(), [&] { return next_mpi().Init(argc, argv); });
}
CRIMP_EXPORT int PMPI_Init(int* argc, char*** argv) {
  return init(next_pmpi(), [&] { return next_pmpi().Init(argc, argv); });
}
CRIMP_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return init(next_mpi(), [&] { return next_mpi().Init_thread(argc, argv, required, provided); });
}
CRIMP_EXPORT int PMPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  return init(next_pmpi(), [&] { return next_pmpi().Init_thread(argc, argv, required, provided); });
}
CRIMP_EXPORT int MPI_Finalize(void) { return finalize(next_mpi()); }
CRIMP_EXPORT int PMPI_Finalize(void) { return finalize(next_pmpi()); }
CRIMP_EXPORT int MPI_Pcontrol(const int level, ...) { return pcontrol(next_mpi(), level); }
CRIMP_EXPORT int PMPI_Pcontrol(const int level, ...) { return pcontrol(next_pmpi(), level); }
}
