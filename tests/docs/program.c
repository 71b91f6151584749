/* A program as Crimp's users have it: sums gradients of two layers in every step. Prints what the squares of its
 * weights sum to. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLarge = 1 << 19, kSmall = 1 << 15 };

/* Ranks pull into directions that differ a little, around one that they share. */
static void gradient(float* to, const float* weights, int count, int rank, int step, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    unsigned x = seed * 2654435761u + (unsigned)i * 2246822519u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    const float target = (float)(x % 2001) / 1000 - 1;
    unsigned y = x + (unsigned)rank * 374761393u + (unsigned)step * 668265263u;
    y ^= y >> 15, y *= 2246822519u, y ^= y >> 13;
    to[i] = weights[i] - target + 0.1f * ((float)(y % 2001) / 1000 - 1);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int steps = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 30;
  const int counts[2] = {kLarge, kSmall};
  float *weights[2], *gradients[2];
  for (int t = 0; t < 2; ++t) {
    weights[t] = calloc((size_t)counts[t], sizeof(float));
    gradients[t] = malloc((size_t)counts[t] * sizeof(float));
  }
  for (int step = 0; step < steps; ++step)
    for (int t = 0; t < 2; ++t) {
      gradient(gradients[t], weights[t], counts[t], rank, step, (unsigned)t + 1);
      MPI_Allreduce(MPI_IN_PLACE, gradients[t], counts[t], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      for (int i = 0; i < counts[t]; ++i) weights[t][i] -= 0.03f * gradients[t][i] / (float)ranks;
    }
  double squares = 0;
  for (int t = 0; t < 2; ++t)
    for (int i = 0; i < counts[t]; ++i) squares += (double)weights[t][i] * weights[t][i];
  if (rank == 0) printf("%d ranks, %d steps: the squares of the weights sum to %.0f\n", ranks, steps, squares);
  MPI_Finalize();
  return 0;
}
