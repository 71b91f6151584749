/* Linked with Crimp ahead of MPI; names nothing of it. */
#include <mpi.h>

static float in[20000], out[20000];

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Allreduce(in, out, 20000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return MPI_Finalize();
}
