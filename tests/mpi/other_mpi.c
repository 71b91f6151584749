/* Functions of few and of many arguments, in registers and on the stack: each does what MPI's does, whatever is
 * preloaded. */
#include <mpi.h>
#include <stdio.h>

static int failures;
#define CHECK(what) \
  if (!(what)) failures += !!printf("rank %d: failed: %s\n", rank, #what)

int main(int argc, char** argv) {
  if (argc > 1) return 0; /* only linked with MPI */
  int provided = -1, rank = -1, ranks = -1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm all;
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &ranks);
  MPI_Pcontrol(1);
  int one[8], parts[8], places[8], got[8] = {0}, sum = 0;
  for (int r = 0; r < ranks; ++r) one[r] = 10 * rank + r, parts[r] = 1, places[r] = r;
  CHECK(MPI_Alltoallv(one, parts, places, MPI_INT, got, parts, places, MPI_INT, all) == MPI_SUCCESS);
  for (int r = 0; r < ranks; ++r) CHECK(got[r] == 10 * r + rank);
  CHECK(MPI_Allgatherv(&rank, 1, MPI_INT, got, parts, places, MPI_INT, all) == MPI_SUCCESS);
  for (int r = 0; r < ranks; ++r) CHECK(got[r] == r);
  CHECK(MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, ranks - 1, all) == MPI_SUCCESS);
  CHECK(rank != ranks - 1 || sum == ranks * (ranks - 1) / 2);
  CHECK(MPI_Reduce_scatter_block(MPI_IN_PLACE, got, 1, MPI_INT, MPI_SUM, all) == MPI_SUCCESS && got[0] == ranks * rank);
  static float in[20000], out[20000];
  for (int i = 0; i < 20000; ++i) in[i] = 1e-3f + 1e-9f * (float)i; /* not exact in half precision */
  CHECK(MPI_Allreduce(in, out, 20000, MPI_FLOAT, MPI_SUM, all) == MPI_SUCCESS && out[77] == (float)ranks * in[77]);
  MPI_Comm_free(&all);
  MPI_Finalize();
  if (!failures) printf("rank %d of %d: good\n", rank, ranks);
  return failures != 0;
}
