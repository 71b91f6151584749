/* Stands behind Crimp: says what Crimp exchanges with other ranks besides comparing settings. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#define SAYING(name, parameters, ...)                      \
  int name parameters {                                    \
    fprintf(stderr, "Crimp calls " #name "\n");            \
    int(*const next) parameters = dlsym(RTLD_NEXT, #name); \
    return next(__VA_ARGS__);                              \
  }
SAYING(PMPI_Bcast, (void* data, int count, MPI_Datatype type, int root, MPI_Comm comm), data, count, type, root, comm)
SAYING(PMPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* to), comm, type, key, info, to)
SAYING(PMPI_Comm_dup, (MPI_Comm comm, MPI_Comm* to), comm, to)
SAYING(PMPI_Iallgather,
       (const void* send, int n, MPI_Datatype type, void* to, int each, MPI_Datatype of, MPI_Comm comm, MPI_Request* r),
       send, n, type, to, each, of, comm, r)
SAYING(PMPI_Gather,
       (const void* send, int n, MPI_Datatype type, void* to, int each, MPI_Datatype of, int root, MPI_Comm comm), send,
       n, type, to, each, of, root, comm)
SAYING(PMPI_Igather,
       (const void* send, int n, MPI_Datatype type, void* to, int each, MPI_Datatype of, int root, MPI_Comm comm,
        MPI_Request* r),
       send, n, type, to, each, of, root, comm, r)
