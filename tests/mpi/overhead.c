/* What Crimp adds to calls that pass through: MPI_Allreduce as the program sees it against the MPI library's own, in turn, on one rank,
 * where the call itself costs next to nothing. A measurement: its times decide nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double nanoseconds(allreduce f, int count, MPI_Datatype type, MPI_Op op) {
  enum { kCalls = 20000 };
  static long long in[64], out[64];
  const double begin = now();
  for (int i = 0; i < kCalls; ++i) f(in, out, count, type, op, MPI_COMM_WORLD);
  return (now() - begin) / kCalls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(void) {
  enum { kRounds = 31 };
  MPI_Init(NULL, NULL);
  Dl_info info;
  dladdr(dlsym(RTLD_DEFAULT, "PMPI_Get_version"), &info);
  const allreduce native = (allreduce)dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), "PMPI_Allreduce");
  const struct {
    const char* name;
    int count;
    MPI_Datatype type;
    MPI_Op op;
  } cases[] = {{"1 int, MPI_SUM", 1, MPI_INT, MPI_SUM},
               {"4 long long, MPI_BAND", 4, MPI_LONG_LONG_INT, MPI_BAND},
               {"1 float, MPI_SUM", 1, MPI_FLOAT, MPI_SUM},
               {"64 floats, MPI_MAX", 64, MPI_FLOAT, MPI_MAX},
               {"0 floats, MPI_SUM", 0, MPI_FLOAT, MPI_SUM}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
    double plain[kRounds], added[kRounds];
    for (int r = 0; r < kRounds; ++r) {
      plain[r] = nanoseconds(native, cases[c].count, cases[c].type, cases[c].op);
      added[r] = nanoseconds(MPI_Allreduce, cases[c].count, cases[c].type, cases[c].op) - plain[r];
    }
    qsort(plain, kRounds, sizeof *plain, ascending);
    qsort(added, kRounds, sizeof *added, ascending);
    printf("%-24s MPI %6.1f ns, Crimp adds %6.1f ns (medians of %d; quartiles %.1f, %.1f)\n", cases[c].name, plain[kRounds / 2],
           added[kRounds / 2], kRounds, added[kRounds / 4], added[3 * kRounds / 4]);
  }
  MPI_Finalize();
  return 0;
}
