/* Preloaded behind Crimp: while `answered` is set, Horovod's control calls succeed at once, as if this rank's input
 * were the result. So what a call takes is what Crimp adds. Its operation makes a program look like Horovod. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>

int answered = 0;

void horovod_max(void* in, void* inout, int* count,
                 MPI_Datatype* type) __asm__("_ZN7horovod6common11float16_maxEPvS1_PiPP15ompi_datatype_t");
void horovod_max(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)in, (void)inout, (void)count, (void)type;
}

#define PASS(name, ...)                                 \
  static int (*next)();                                 \
  if (answered) return MPI_SUCCESS;                     \
  if (!next) next = (int (*)())dlsym(RTLD_NEXT, #name); \
  return next(__VA_ARGS__)

int MPI_Allreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  PASS(MPI_Allreduce, in, out, n, type, op, comm);
}
int MPI_Bcast(void* buffer, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  PASS(MPI_Bcast, buffer, n, type, root, comm);
}
int MPI_Gatherv(const void* in, int n, MPI_Datatype type, void* out, const int* counts, const int* places,
                MPI_Datatype to, int root, MPI_Comm comm) {
  PASS(MPI_Gatherv, in, n, type, out, counts, places, to, root, comm);
}
