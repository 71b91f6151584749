/* Every two ranks sum in a communicator of their own. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  enum { kCount = 20000 };
  MPI_Comm pair;
  int rank = 0;
  float* const sums = calloc(kCount, sizeof *sums);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &pair);
  MPI_Allreduce(MPI_IN_PLACE, sums, kCount, MPI_FLOAT, MPI_SUM, pair);
  MPI_Comm_free(&pair);
  MPI_Finalize();
  free(sums);
  return 0;
}
