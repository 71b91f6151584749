/* Preloaded before Crimp: a wait fails, where a test asks for it, after it has waited (MPI_Wait, or the MPI_Test that
 * completes a request). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

int fail_wait; /* which wait from now on */
MPI_Comm fail_on;

static int waited(int rc) {
  if (!fail_wait || --fail_wait) return rc;
  PMPI_Comm_call_errhandler(fail_on, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

int PMPI_Wait(MPI_Request* request, MPI_Status* status) {
  int (*const next)(MPI_Request*, MPI_Status*) = (int (*)(MPI_Request*, MPI_Status*))dlsym(RTLD_NEXT, "PMPI_Wait");
  return waited(next(request, status));
}

int PMPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  int (*const next)(MPI_Request*, int*, MPI_Status*) =
      (int (*)(MPI_Request*, int*, MPI_Status*))dlsym(RTLD_NEXT, "PMPI_Test");
  const int rc = next(request, flag, status);
  return *flag ? waited(rc) : rc;
}
