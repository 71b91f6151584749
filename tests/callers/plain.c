/* Sums a vector, as most programs do. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

enum { kCount = 100000 };
static float in[kCount], sum[kCount];

int main(int argc, char** argv) {
  int rank, size, good = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < kCount; ++i) in[i] = (float)(rank + 1) / 3;
  MPI_Allreduce(in, sum, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < kCount; ++i) good = good && fabsf(sum[i] - (float)(size * (size + 1)) / 6) < 1e-2f;
  MPI_Finalize();
  if (!good) fprintf(stderr, "rank %d: the sum is %g\n", rank, (double)sum[0]);
  return good ? 0 : 1;
}
