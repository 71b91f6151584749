/* A bad interposer, to show that the tests notice one. SABOTAGE says how; it stands in for Crimp or in front of it.
 *   ulp    on rank 1 the last element is one unit in the last place off (the last byte's lowest bit, for every type)
 *   scale  sums of floats are 1 % too large
 *   code   errors are reported as success
 *   guard  one byte behind the buffer is written
 *   send   the caller's send buffer is changed
 *   hang   rank 1 never returns
 *   slow   a call takes two microseconds more */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef int (*allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

static long long nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int call(allreduce next, const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                MPI_Comm comm) {
  const char* how = getenv("SABOTAGE");
  int rank = 0, bytes = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (how && !strcmp(how, "hang") && rank == 1) pause();
  if (how && !strcmp(how, "slow"))
    for (const long long begin = nanoseconds(); nanoseconds() < begin + 2000;) {
    }
  int rc = next(send, receive, count, type, op, comm);
  if (!how) return rc;
  if (!strcmp(how, "code")) return MPI_SUCCESS;
  if (rc != MPI_SUCCESS || count <= 0) return rc;
  PMPI_Type_size(type, &bytes);
  unsigned char* const last = (unsigned char*)receive + (size_t)(count - 1) * (size_t)bytes;
  if (!strcmp(how, "ulp") && rank == 1) *last ^= 1;
  if (!strcmp(how, "guard")) last[bytes] = 0;
  if (!strcmp(how, "send") && send != MPI_IN_PLACE) ((unsigned char*)send)[0] ^= 1;
  if (!strcmp(how, "scale") && type == MPI_FLOAT)
    for (int i = 0; i < count; ++i) ((float*)receive)[i] *= 1.01f;
  return rc;
}

EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return call((allreduce)dlsym(RTLD_NEXT, "MPI_Allreduce"), send, receive, count, type, op, comm);
}
