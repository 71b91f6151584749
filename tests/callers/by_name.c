/* by_name MODE LIBRARY: a program that knows MPI by its header alone, opens LIBRARY by its name and looks everything up
   on that handle, as MLX, oneCCL and Julia do. MODE is local, global or deepbind. LIBRARY is libcrimp.so or an MPI
   library. Most of what it asks for is not exported by Crimp. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 100000 };

static void* library;

static void* find(const char* name) {
  void* const found = dlsym(library, name);
  if (!found) fprintf(stderr, "%s\n", dlerror()), exit(1);
  return found;
}
#define FUNCTION(name) __typeof__(name)* const name##_found = (__typeof__(name)*)find(#name)
#ifdef OPEN_MPI
#define OBJECT(type, constant, symbol) ((type)find(symbol))
#else
#define OBJECT(type, constant, symbol) (constant)
#endif

static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((int*)inout)[i] += ((int*)in)[i];
}

static int right(const float* sum, int size) {
  for (int i = 0; i < kCount; ++i)
    if (!(fabsf(sum[i] - (float)(size * (size + 1)) / 6) < 1e-2f)) return 0;
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int mode = !strcmp(argv[1], "global")     ? RTLD_GLOBAL
                   : !strcmp(argv[1], "deepbind") ? RTLD_LOCAL | RTLD_DEEPBIND
                                                  : RTLD_LOCAL;
  library = dlopen(argv[2], RTLD_NOW | mode);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  FUNCTION(MPI_Init);
  FUNCTION(MPI_Finalize);
  FUNCTION(MPI_Comm_rank);
  FUNCTION(MPI_Comm_size);
  FUNCTION(MPI_Comm_split);
  FUNCTION(MPI_Comm_free);
  FUNCTION(MPI_Type_contiguous);
  FUNCTION(MPI_Type_commit);
  FUNCTION(MPI_Type_free);
  FUNCTION(MPI_Op_create);
  FUNCTION(MPI_Op_free);
  FUNCTION(MPI_Sendrecv);
  FUNCTION(MPI_Allgather);
  FUNCTION(MPI_Allreduce);
  const MPI_Comm world = OBJECT(MPI_Comm, MPI_COMM_WORLD, "ompi_mpi_comm_world");
  const MPI_Datatype floats = OBJECT(MPI_Datatype, MPI_FLOAT, "ompi_mpi_float"),
                     ints = OBJECT(MPI_Datatype, MPI_INT, "ompi_mpi_int");
  const MPI_Op sums = OBJECT(MPI_Op, MPI_SUM, "ompi_mpi_op_sum");

  int rank, size, good = 1;
  MPI_Init_found(&argc, &argv);
  MPI_Comm_rank_found(world, &rank);
  MPI_Comm_size_found(world, &size);
  MPI_Comm all;
  MPI_Comm_split_found(world, 0, rank, &all);

  int mine = rank, next = -1, *ranks = malloc((size_t)size * sizeof(int));
  MPI_Sendrecv_found(&mine, 1, ints, (rank + 1) % size, 7, &next, 1, ints, (rank + size - 1) % size, 7, all,
                     MPI_STATUS_IGNORE);
  good = good && next == (rank + size - 1) % size;
  MPI_Allgather_found(&mine, 1, ints, ranks, 1, ints, all);
  for (int r = 0; r < size; ++r) good = good && ranks[r] == r;

  MPI_Datatype own;
  MPI_Op own_sum;
  MPI_Type_contiguous_found(1, ints, &own);
  MPI_Type_commit_found(&own);
  MPI_Op_create_found(add, 1, &own_sum);
  int total = 0;
  mine = rank + 1;
  MPI_Allreduce_found(&mine, &total, 1, own, own_sum, all);
  good = good && total == size * (size + 1) / 2;

  float *in = malloc(kCount * sizeof(float)), *sum = malloc(kCount * sizeof(float));
  for (int i = 0; i < kCount; ++i) in[i] = (float)(rank + 1) / 3;
  MPI_Allreduce_found(in, sum, kCount, floats, sums, all);
  good = good && right(sum, size);
  MPI_Allreduce_found(MPI_IN_PLACE, in, kCount, floats, sums, world);
  good = good && !memcmp(in, sum, kCount * sizeof(float));

  MPI_Op_free_found(&own_sum);
  MPI_Type_free_found(&own);
  MPI_Comm_free_found(&all);
  printf("expect %d calls=2 passed_through.operation=1\n", rank);
  fflush(stdout);
  MPI_Finalize_found();
  return good ? 0 : 1;
}
