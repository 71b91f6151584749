/* Preloaded before Crimp, for its own calls, or behind it, for the program's: a wait fails, where a test asks for it,
 * after it has waited (MPI_Wait, or the MPI_Test that completes a request), or a sum after it has summed, or the next
 * operation is not made, or not freed, or an error gets no code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

int fail_wait, fail_allreduce; /* which one from now on */
int fail_op_create, fail_op_free, fail_error_code;
MPI_Comm fail_on;
void (*when_op_freed)(void); /* before the next MPI_Op_free returns */

int PMPI_Op_create(MPI_User_function* function, int commute, MPI_Op* op) {
  int (*const next)(MPI_User_function*, int, MPI_Op*) =
      (int (*)(MPI_User_function*, int, MPI_Op*))dlsym(RTLD_NEXT, "PMPI_Op_create");
  if (!fail_op_create) return next(function, commute, op);
  fail_op_create = 0;
  return MPI_ERR_OTHER;
}

int MPI_Op_free(MPI_Op* op) {
  int (*const next)(MPI_Op*) = (int (*)(MPI_Op*))dlsym(RTLD_NEXT, "MPI_Op_free");
  if (!fail_op_free) {
    const int rc = next(op);
    void (*const then)(void) = when_op_freed;
    when_op_freed = 0;
    if (then) then();
    return rc;
  }
  fail_op_free = 0;
  return MPI_ERR_OTHER;
}

int PMPI_Add_error_code(int error_class, int* code) {
  int (*const next)(int, int*) = (int (*)(int, int*))dlsym(RTLD_NEXT, "PMPI_Add_error_code");
  if (!fail_error_code) return next(error_class, code);
  fail_error_code = 0;
  PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

static int failed(int* which, int rc) {
  if (!*which || --*which) return rc;
  PMPI_Comm_call_errhandler(fail_on, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

static int waited(int rc) { return failed(&fail_wait, rc); }

int PMPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  int (*const next)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) =
      (int (*)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm))dlsym(RTLD_NEXT, "PMPI_Allreduce");
  return failed(&fail_allreduce, next(send, receive, count, type, op, comm));
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
