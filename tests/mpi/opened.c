/* Stands for what brings MPI into a program that has none (an extension of Python's, a plug-in). What it calls takes no
 * handles, so that it ends well with any MPI that it comes to. */
#include <mpi.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int run(int sums) {
  static float in[4], out[4];
  int rc = MPI_Init(NULL, NULL);
  for (int i = 0; i < sums; ++i) rc += MPI_Allreduce(in, out, 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  rc += MPI_Finalize();
  if (!rc) puts("good");
  return rc != 0;
}
