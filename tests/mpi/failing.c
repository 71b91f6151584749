/* Preloaded before Crimp: MPI_Wait fails, where a test asks for it, after it has waited. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

int fail_wait; /* which wait from now on */
MPI_Comm fail_on;

int PMPI_Wait(MPI_Request* request, MPI_Status* status) {
  int (*const next)(MPI_Request*, MPI_Status*) = (int (*)(MPI_Request*, MPI_Status*))dlsym(RTLD_NEXT, "PMPI_Wait");
  const int rc = next(request, status);
  if (!fail_wait || --fail_wait) return rc;
  PMPI_Comm_call_errhandler(fail_on, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}
