// Functions of crimp.h with bad arguments before MPI_Init and behind MPI_Finalize: a code, a line, and the program goes
// on.
#include <crimp/crimp.h>
#include <mpi.h>
#include <stdio.h>

static int failures = 0;
static void check(int is, const char* what) {
  if (!is) ++failures, printf("failed: %s\n", what);
}

int main(int argc, char** argv) {
  check(crimp_set_algorithm(MPI_COMM_WORLD, "nonsense") == MPI_ERR_OTHER, "before MPI_Init");
  check(crimp_datatype(CRIMP_FLOAT32, NULL, NULL) == MPI_ERR_OTHER, "no places, before MPI_Init");
  check(MPI_Init(&argc, &argv) == MPI_SUCCESS, "MPI_Init");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check(crimp_set_algorithm(MPI_COMM_WORLD, "nonsense") > MPI_ERR_LASTCODE, "inside, a code of Crimp's");
  MPI_Finalize();
  check(crimp_set_algorithm(MPI_COMM_WORLD, "nonsense") == MPI_ERR_OTHER, "behind MPI_Finalize");
  puts(failures ? "failed" : "went on");
  return failures != 0;
}
