/* Another PMPI tool: counts the calls it sees, says so at MPI_Finalize. Level 7 of MPI_Pcontrol has a region's name and
 * a number. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
static int seen, finalized;

EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++seen;
  return PMPI_Allreduce(send, receive, count, type, op, comm);
}

EXPORT int MPI_Pcontrol(const int level, ...) {
  if (level == 7) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    va_list list;
    va_start(list, level);
    const char* const region = va_arg(list, const char*);
    const int number = va_arg(list, int);
    va_end(list);
    printf("tool on rank %d: region %s, %d\n", rank, region, number);
  }
  return PMPI_Pcontrol(level);
}

EXPORT int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!finalized++) printf("tool on rank %d: %d calls\n", rank, seen);
  fflush(stdout);
  return PMPI_Finalize();
}
