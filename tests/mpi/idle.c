/* Does not use MPI, unless told to. */
#include <mpi.h>

int main(int argc, char** argv) {
  (void)argv;
  if (argc > 1) {
    MPI_Init(0, 0);
    MPI_Finalize();
  }
  return 0;
}
