/* How much of MPI_Iallreduce the program's own work hides, as osu_iallreduce counts it: of sums that take t alone and,
 * around work that takes as long, T in all, 100 (1 - (T - work) / t) percent. The work makes no MPI calls.
 *
 * mpi_overlap [elements [repetitions]] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static volatile double sink;

static void work(long turns) {
  double x = 1;
  for (long i = 0; i < turns; ++i) x = x * 0.999999 + 1e-9;
  sink = x;
}

static double timed_work(long turns) {
  const double begin = MPI_Wtime();
  work(turns);
  return MPI_Wtime() - begin;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? atoi(argv[1]) : 4 << 20, repetitions = argc > 2 ? atoi(argv[2]) : 15;
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  float *in = malloc(sizeof *in * (size_t)count), *out = malloc(sizeof *out * (size_t)count);
  double *alone = malloc(sizeof *alone * (size_t)repetitions),
         *together = malloc(sizeof *together * (size_t)repetitions),
         *worked = malloc(sizeof *worked * (size_t)repetitions), *beside = malloc(sizeof *beside * (size_t)repetitions);
  for (int i = 0; i < count; ++i) in[i] = (float)((i * 37 + rank) % 101) / 50 - 1;
  MPI_Request request;
  long turns = 0;
  for (int with_work = 0; with_work < 2; ++with_work) {
    double* const times = with_work ? together : alone;
    for (int r = -3; r < repetitions; ++r) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double quiet = with_work ? timed_work(turns) : 0;
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Iallreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
      const double took_work = with_work ? timed_work(turns) : 0;
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      double took = MPI_Wtime() - begin;
      MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (r < 0) continue;
      times[r] = took;
      worked[r] = quiet;
      beside[r] = took_work;
    }
    qsort(times, (size_t)repetitions, sizeof *times, ascending);
    if (with_work) break;
    turns = (long)(alone[repetitions / 2] / (timed_work(20000000) / 20000000));
    MPI_Bcast(&turns, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  }
  qsort(worked, (size_t)repetitions, sizeof *worked, ascending);
  qsort(beside, (size_t)repetitions, sizeof *beside, ascending);
  const double t = alone[repetitions / 2], all = together[repetitions / 2], quiet = worked[repetitions / 2];
  if (rank == 0)
    printf(
        "%d ranks, %d floats: alone %.2f ms, work %.2f ms (%.2f beside the sum), together %.2f ms, overlap %.0f %%\n",
        size, count, 1e3 * t, 1e3 * quiet, 1e3 * beside[repetitions / 2], 1e3 * all, 100 * (1 - (all - quiet) / t));
  MPI_Finalize();
  return 0;
}
