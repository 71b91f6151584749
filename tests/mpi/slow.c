/* Stands behind Crimp: plain sums of floats take longer, by a time that differs between ranks, calls and values of
 * SLOW. What Crimp decides by clocks is then never that plain MPI is best, and another thing in every run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int PMPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type,
                                                          MPI_Op op, MPI_Comm comm) {
  static unsigned state = 0;
  const char* slow = getenv("SLOW");
  if (slow && type == MPI_FLOAT) {
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!state) state = (unsigned)atoi(slow) * 2654435761u + (unsigned)rank + 1;
    state = state * 1664525u + 1013904223u;
    usleep((unsigned)count / 20 + (state >> 22));
  }
  return ((int (*)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm))dlsym(RTLD_NEXT, "PMPI_Allreduce"))(
      send, receive, count, type, op, comm);
}
