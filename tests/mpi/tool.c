/* Another PMPI tool: counts the calls it sees, says so at MPI_Finalize. Level 7 of MPI_Pcontrol has a region's name and
 * a number. Where a test asks for it the next MPI_Wait is refused, or the next MPI_Startall
 * fails behind its first request. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
int refuse_wait, break_startall;
static int seen, finalized, waitall, testall, get_status;

EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++seen;
  return PMPI_Allreduce(send, receive, count, type, op, comm);
}

EXPORT int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (!refuse_wait) return PMPI_Wait(request, status);
  refuse_wait = 0;
  return MPI_ERR_OTHER;
}

EXPORT int MPI_Startall(int count, MPI_Request* requests) {
  if (!break_startall) return PMPI_Startall(count, requests);
  break_startall = 0;
  const int rc = PMPI_Start(requests);
  return rc == MPI_SUCCESS ? MPI_ERR_OTHER : rc;
}

EXPORT int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  ++waitall;
  return PMPI_Waitall(count, requests, statuses);
}

EXPORT int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  ++testall;
  return PMPI_Testall(count, requests, flag, statuses);
}

EXPORT int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  ++get_status;
  return PMPI_Request_get_status(request, flag, status);
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
  if (!finalized++)
    printf("tool on rank %d: %d calls, MPI_Waitall %d, MPI_Testall %d, MPI_Request_get_status %d\n", rank, seen,
           waitall, testall, get_status);
  fflush(stdout);
  return PMPI_Finalize();
}
