/* Sums of a program that uses MPI by sessions alone (MPI 4): right, uncompressed, and said to be so. */
#include <mpi.h>
#include <stdio.h>

#define COUNT 20000

int main(void) {
#if MPI_VERSION < 4
  puts("skipped: this MPI has no sessions");
  return 77;
#else
  static float x[COUNT], sum[COUNT];
  MPI_Session session;
  MPI_Group group;
  MPI_Comm all;
  int rank, ranks, wrong = 0;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm_create_from_group(group, "sessions", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &ranks);
  for (int i = 0; i < COUNT; ++i) x[i] = (float)(i % 4001 - 2000) / 2048; /* not exact in half precision, sums are */
  for (int call = 0; call < 4; ++call) {
    MPI_Allreduce(x, sum, COUNT, MPI_FLOAT, MPI_SUM, all);
    for (int i = 0; i < COUNT; ++i) wrong += sum[i] != (float)ranks * x[i];
  }
  MPI_Comm_free(&all);
  MPI_Group_free(&group);
  MPI_Session_finalize(&session);
  printf("rank %d of %d: %d wrong\n", rank, ranks, wrong);
  return wrong != 0;
#endif
}
