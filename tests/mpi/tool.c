/* Another PMPI tool: counts the calls it sees, says so at MPI_Finalize. Level 7 of MPI_Pcontrol has a region's name and
 * a number. Where a test asks for it the next MPI_Wait is refused, or the n-th MPI_Start. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
int refuse_wait, refuse_start;
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

EXPORT int MPI_Start(MPI_Request* request) {
  return refuse_start && --refuse_start == 0 ? MPI_ERR_OTHER : PMPI_Start(request);
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
