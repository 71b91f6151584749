/* What Crimp adds to calls that pass through: MPI_Allreduce as the program sees it against the MPI library's own, in
 * turn, on one rank, where the call itself costs next to nothing. 2 to 25 ns are added; more than kBound in every
 * case's every attempt is a failure. The bound is far above what is measured, medians are over batches shorter than a
 * time slice, and an attempt is repeated, so that other work on the machine does not decide. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*waiting)(MPI_Request*, MPI_Status*);
typedef int (*waiting_all)(int, MPI_Request*, MPI_Status*);
typedef int (*testing)(MPI_Request*, int*, MPI_Status*);
typedef int (*testing_some)(int, MPI_Request*, int*, int*, MPI_Status*);
typedef int (*reduce)(const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm);
typedef int (*starting)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
typedef int (*starting_root)(const void*, void*, int, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request*);
typedef int (*starting_shares)(const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
typedef int (*shares)(const void*, void*, const int*, MPI_Datatype, MPI_Op, MPI_Comm);
typedef int (*waiting_any)(int, MPI_Request*, int*, MPI_Status*);
typedef int (*testing_all)(int, MPI_Request*, int*, MPI_Status*);
typedef int (*testing_any)(int, MPI_Request*, int*, int*, MPI_Status*);
typedef int (*asking)(MPI_Request, int*, MPI_Status*);
typedef int (*starting_again)(MPI_Request*);
typedef int (*starting_all)(int, MPI_Request*);
typedef int (*allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

#if MPI_VERSION >= 4
typedef int (*allreduce_c)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
typedef int (*reduce_c)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm);
typedef int (*shares_c)(const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm);
typedef int (*starting_c)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
typedef int (*starting_root_c)(const void*, void*, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request*);
typedef int (*starting_shares_c)(const void*, void*, const MPI_Count*, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double nanoseconds(allreduce f, int count, MPI_Datatype type, MPI_Op op) {
  enum { kCalls = 2000 };
  static long long in[64], out[64];
  const double begin = now();
  for (int i = 0; i < kCalls; ++i) f(in, out, count, type, op, MPI_COMM_WORLD);
  return (now() - begin) / kCalls;
}

static waiting native_wait;

/* Other calls: of requests that are none, so that MPI has next to nothing to do, and of one integer. What does not
 * block is waited for past Crimp. */
enum {
  kWait,
  kWaitall,
  kWaitany,
  kWaitsome,
  kTest,
  kTestall,
  kTestany,
  kTestsome,
  kGetStatus,
  kStart,
  kStartall,
  kReduce,
  kReduceScatter,
  kReduceScatterBlock,
  kIallreduce,
  kIreduce,
  kIreduceScatter,
  kIreduceScatterBlock,
#if MPI_VERSION >= 4
  kAllreduceC,
  kReduceC,
  kReduceScatterC,
  kReduceScatterBlockC,
  kIallreduceC,
  kIreduceC,
  kIreduceScatterC,
  kIreduceScatterBlockC,
#endif
  kOthers
};
static double other(int which, void* f) {
  enum { kCalls = 2000 };
  static long long in[2], out[2];
  static MPI_Request again = MPI_REQUEST_NULL;
  MPI_Request none[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int flag = 0, index = 0, indices[2];
  const int one = 1;
#if MPI_VERSION >= 4
  const MPI_Count large = 1;
#endif
  if ((which == kStart || which == kStartall) && again == MPI_REQUEST_NULL)
    MPI_Send_init(in, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &again);
  const double begin = now();
  for (int i = 0; i < kCalls; ++i) switch (which) {
      case kWait: ((waiting)f)(none, MPI_STATUS_IGNORE); break;
      case kWaitall: ((waiting_all)f)(2, none, MPI_STATUSES_IGNORE); break;
      case kWaitany: ((waiting_any)f)(2, none, &index, MPI_STATUS_IGNORE); break;
      case kTestall: ((testing_all)f)(2, none, &flag, MPI_STATUSES_IGNORE); break;
      case kTestany: ((testing_any)f)(2, none, &index, &flag, MPI_STATUS_IGNORE); break;
      case kGetStatus: ((asking)f)(none[0], &flag, MPI_STATUS_IGNORE); break;
      case kTest: ((testing)f)(none, &flag, MPI_STATUS_IGNORE); break;
      case kWaitsome:
      case kTestsome: ((testing_some)f)(2, none, &flag, indices, MPI_STATUSES_IGNORE); break;
      case kStart: ((starting_again)f)(&again), native_wait(&again, MPI_STATUS_IGNORE); break;
      case kStartall: ((starting_all)f)(1, &again), native_wait(&again, MPI_STATUS_IGNORE); break;
      case kReduce: ((reduce)f)(in, out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); break;
      case kReduceScatter: ((shares)f)(in, out, &one, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
      case kReduceScatterBlock: ((allreduce)f)(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
      case kIreduce:
        ((starting_root)f)(in, out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, none), native_wait(none, MPI_STATUS_IGNORE);
        break;
      case kIreduceScatter:
        ((starting_shares)f)(in, out, &one, MPI_INT, MPI_SUM, MPI_COMM_WORLD, none);
        native_wait(none, MPI_STATUS_IGNORE);
        break;
#if MPI_VERSION >= 4
      case kAllreduceC:
      case kReduceScatterBlockC: ((allreduce_c)f)(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
      case kReduceC: ((reduce_c)f)(in, out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); break;
      case kReduceScatterC: ((shares_c)f)(in, out, &large, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
      case kIallreduceC:
      case kIreduceScatterBlockC:
        ((starting_c)f)(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, none), native_wait(none, MPI_STATUS_IGNORE);
        break;
      case kIreduceC:
        ((starting_root_c)f)(in, out, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, none);
        native_wait(none, MPI_STATUS_IGNORE);
        break;
      case kIreduceScatterC:
        ((starting_shares_c)f)(in, out, &large, MPI_INT, MPI_SUM, MPI_COMM_WORLD, none);
        native_wait(none, MPI_STATUS_IGNORE);
        break;
#endif
      default: ((starting)f)(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, none); native_wait(none, MPI_STATUS_IGNORE);
    }
  return (now() - begin) / kCalls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Median of what is added; of MPI's own calls where `plain_ns` points. */
static double added_ns(allreduce native, int count, MPI_Datatype type, MPI_Op op, double quartiles[2],
                       double* plain_ns) {
  enum { kRounds = 301 };
  double plain[kRounds], added[kRounds];
  for (int r = 0; r < kRounds; ++r) {
    plain[r] = nanoseconds(native, count, type, op);
    added[r] = nanoseconds(MPI_Allreduce, count, type, op) - plain[r];
  }
  qsort(plain, kRounds, sizeof *plain, ascending);
  qsort(added, kRounds, sizeof *added, ascending);
  *plain_ns = plain[kRounds / 2];
  quartiles[0] = added[kRounds / 4], quartiles[1] = added[3 * kRounds / 4];
  return added[kRounds / 2];
}

static void* in_libmpi(const char* name) {
  Dl_info info;
  dladdr(dlsym(RTLD_DEFAULT, "PMPI_Get_version"), &info);
  return dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), name);
}

/* mpi_overhead [first]: only the first case, once: for a control that is slow on purpose. */
int main(int argc, char** argv) {
  enum { kBound = 500, kAttempts = 3 };
  const int once = argc > 1 && !strcmp(argv[1], "first");
  int slow = 0;
  MPI_Init(NULL, NULL);
  const allreduce native = (allreduce)in_libmpi("PMPI_Allreduce");
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
  for (size_t c = 0; c < (once ? 1 : sizeof cases / sizeof *cases); ++c) {
    double added = kBound + 1, plain, quartiles[2];
    for (int attempt = 0; attempt < (once ? 1 : kAttempts) && added > kBound; ++attempt) {
      added = added_ns(native, cases[c].count, cases[c].type, cases[c].op, quartiles, &plain);
      printf("%-24s MPI %6.1f ns, Crimp adds %6.1f ns (medians; quartiles %.1f, %.1f)\n", cases[c].name, plain, added,
             quartiles[0], quartiles[1]);
    }
    if (added <= kBound) continue;
    printf("%s: more than %d ns are added\n", cases[c].name, kBound);
    slow = 1;
  }
  native_wait = (waiting)in_libmpi("PMPI_Wait");
#define OF(name) \
  { "MPI_" #name, (void*)MPI_##name, in_libmpi("PMPI_" #name) }
  const struct {
    const char* name;
    void *through, *past;
  } others[kOthers] = {
    OF(Wait),
    OF(Waitall),
    OF(Waitany),
    OF(Waitsome),
    OF(Test),
    OF(Testall),
    OF(Testany),
    OF(Testsome),
    OF(Request_get_status),
    OF(Start),
    OF(Startall),
    OF(Reduce),
    OF(Reduce_scatter),
    OF(Reduce_scatter_block),
    OF(Iallreduce),
    OF(Ireduce),
    OF(Ireduce_scatter),
    OF(Ireduce_scatter_block),
#if MPI_VERSION >= 4
    OF(Allreduce_c),
    OF(Reduce_c),
    OF(Reduce_scatter_c),
    OF(Reduce_scatter_block_c),
    OF(Iallreduce_c),
    OF(Ireduce_c),
    OF(Ireduce_scatter_c),
    OF(Ireduce_scatter_block_c),
#endif
  };
  for (int c = 0; c < kOthers && !once; ++c) {
    enum { kRounds = 301 };
    double plain[kRounds], added[kRounds];
    for (int r = 0; r < kRounds; ++r) {
      plain[r] = other(c, others[c].past);
      added[r] = other(c, others[c].through) - plain[r];
    }
    qsort(plain, kRounds, sizeof *plain, ascending);
    qsort(added, kRounds, sizeof *added, ascending);
    printf("%-24s MPI %6.1f ns, Crimp adds %6.1f ns (medians; quartiles %.1f, %.1f)\n", others[c].name,
           plain[kRounds / 2], added[kRounds / 2], added[kRounds / 4], added[3 * kRounds / 4]);
    if (added[kRounds / 2] > kBound) slow = 1;
  }
  MPI_Finalize();
  return slow;
}
