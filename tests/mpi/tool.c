/* Another PMPI tool: counts the calls it sees, says so at MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
static int seen, finalized;

EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++seen;
  return PMPI_Allreduce(send, receive, count, type, op, comm);
}

EXPORT int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!finalized++) printf("tool on rank %d: %d calls\n", rank, seen);
  fflush(stdout);
  return PMPI_Finalize();
}
