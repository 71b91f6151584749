// Functions of crimp.h with bad arguments before MPI_Init and behind MPI_Finalize: a code, a line, and the program goes
// on.
#include <crimp/crimp.h>
#include <mpi.h>
#include <stdio.h>

static int failures = 0;
static void check(int is, const char* what) {
  if (!is) ++failures, printf("failed: %s\n", what);
}

// What would be legal inside.
static void outside(const char* when) {
  float x[4] = {1, 2, 3, 4};
  MPI_Datatype type;
  MPI_Op sum;
  uint64_t tensors;
  const crimp_segment segments[] = {{"w", 4}};
  printf("%s\n", when);
  check(crimp_set_algorithm(MPI_COMM_WORLD, "nonsense") == MPI_ERR_OTHER, "crimp_set_algorithm");
  check(crimp_set_codec(MPI_COMM_WORLD, "*", "fp16") == MPI_ERR_OTHER, "crimp_set_codec");
  check(crimp_set_learning_rate(MPI_COMM_WORLD, 0.1) == MPI_ERR_OTHER, "crimp_set_learning_rate");
  check(crimp_set_extents(MPI_COMM_WORLD, "w", 2, 2) == MPI_ERR_OTHER, "crimp_set_extents");
  check(crimp_datatype(CRIMP_FLOAT16, &type, &sum) == MPI_ERR_OTHER, "crimp_datatype");
  check(crimp_save(MPI_COMM_WORLD, "/nonexistent") == MPI_ERR_OTHER, "crimp_save");
  check(crimp_load(MPI_COMM_WORLD, "/nonexistent", &tensors) == MPI_ERR_OTHER, "crimp_load");
  check(crimp_forget(MPI_COMM_WORLD) == MPI_ERR_OTHER, "crimp_forget");
  check(crimp_allreduce(MPI_IN_PLACE, x, 4, CRIMP_FLOAT32, MPI_COMM_WORLD, segments, 1) == MPI_ERR_OTHER,
        "crimp_allreduce");
  check(crimp_reduce_scatter_block(x, x, 1, CRIMP_FLOAT32, MPI_COMM_WORLD, NULL, 0) == MPI_ERR_OTHER,
        "crimp_reduce_scatter_block");
}

int main(int argc, char** argv) {
  outside("before MPI_Init");
  check(crimp_datatype(CRIMP_FLOAT32, NULL, NULL) == MPI_ERR_OTHER, "no places, before MPI_Init");
  check(MPI_Init(&argc, &argv) == MPI_SUCCESS, "MPI_Init");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  check(crimp_set_algorithm(MPI_COMM_WORLD, "nonsense") > MPI_ERR_LASTCODE, "inside, a code of Crimp's");
  // Where nothing is compressed arguments are looked at all the same.
  check(crimp_set_codec(MPI_COMM_SELF, "*", "bf61") > MPI_ERR_LASTCODE, "an unknown codec, one rank");
  check(crimp_set_codec(MPI_COMM_SELF, NULL, "bf16") > MPI_ERR_LASTCODE, "no pattern, one rank");
  check(crimp_set_codec(MPI_COMM_SELF, "*", "bf16") == MPI_SUCCESS, "a codec, one rank");
  check(crimp_set_codec(MPI_COMM_SELF, "*", NULL) == MPI_SUCCESS, "no codec any more, one rank");
  check(crimp_set_learning_rate(MPI_COMM_SELF, -1) > MPI_ERR_LASTCODE, "a learning rate, one rank");
  float x[4] = {1, 2, 3, 4};
  const crimp_segment segments[] = {{"w", 4}};
  check(crimp_allreduce(MPI_IN_PLACE, x, 4, CRIMP_FLOAT32, MPI_COMM_SELF, segments, (size_t)-1) > MPI_ERR_LASTCODE,
        "more segments than there can be");
  MPI_Finalize();
  outside("behind MPI_Finalize");
  puts(failures ? "failed" : "went on");
  return failures != 0;
}
