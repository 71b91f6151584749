// MPI_Allreduce_c: as MPI_Allreduce, and counts that need more than one of MPI's calls with an int. crimp_faults makes
// those of 1000 elements the largest (CRIMP_FAULT=short_counts), and hides MPI_Allreduce_c (older_mpi; `older`: errors
// then are MPI_Allreduce's).
#include "check.hpp"

namespace {

#if MPI_VERSION >= 4
constexpr int kCount = 20001;

// Rank r's element i is r + i mod 5: sums are exact in any floating-point type.
template <class T>
void sum(MPI_Datatype type, bool in_place, MPI_Op op = MPI_SUM) {
  std::vector<T> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = out[i] = static_cast<T>(check::rank + i % 5);
  const void* from = in_place ? MPI_IN_PLACE : in.data();
  CHECK(MPI_Allreduce_c(from, out.data(), kCount, type, op, MPI_COMM_WORLD) == MPI_SUCCESS);
  const int n = check::size, last = n - 1;
  for (int i = 0; i < kCount; ++i) {
    const int wanted = op == MPI_MAX ? last + i % 5 : n * last / 2 + n * (i % 5);
    CHECK(out[i] == static_cast<T>(wanted), "element %d is %g, not %d", i, static_cast<double>(out[i]), wanted);
    if (check::failures > 3) return;
  }
}

struct Pair {
  float a, b;
};
void add_pairs(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) {
    static_cast<Pair*>(inout)[i].a += static_cast<Pair*>(in)[i].a;
    static_cast<Pair*>(inout)[i].b += static_cast<Pair*>(in)[i].b;
  }
}

void sum_pairs() {
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_FLOAT, &pair);
  MPI_Type_commit(&pair);
  MPI_Op op;
  MPI_Op_create(add_pairs, 1, &op);
  std::vector<Pair> in(kCount), out(kCount);
  for (int i = 0; i < kCount; ++i) in[i] = {static_cast<float>(i), 1};
  CHECK(MPI_Allreduce_c(in.data(), out.data(), kCount, pair, op, MPI_COMM_WORLD) == MPI_SUCCESS);
  for (int i = 0; i < kCount; ++i)
    CHECK(out[i].a == static_cast<float>(check::size * i) && out[i].b == static_cast<float>(check::size), "pair %d", i);
  MPI_Op_free(&op);
  MPI_Type_free(&pair);
}

void wrong_arguments(bool older) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  float a[2] = {}, b[2] = {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  const int rc = MPI_Allreduce_c(a, b, 2, MPI_FLOAT, MPI_OP_NULL, comm);
  MPI_Error_string(rc, text, &length);
  CHECK(rc != MPI_SUCCESS && (older || std::strstr(text, "Allreduce_c")) && std::strstr(text, "Allreduce"), "'%s'",
        text);
  CHECK(MPI_Allreduce_c(a, b, 0, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS);
  MPI_Comm_free(&comm);
}
#endif

}  // namespace

int main(int argc, char**) {
  check::begin();
#if MPI_VERSION >= 4
  sum<float>(MPI_FLOAT, false);
  sum<float>(MPI_FLOAT, true);
  sum<double>(MPI_DOUBLE, true);
  sum<int>(MPI_INT, false);
  sum<float>(MPI_FLOAT, false, MPI_MAX);
  sum_pairs();
  wrong_arguments(argc > 1);
  check::expected["calls"] = 3;
  check::expected["passed_through.operation"] = 3;
  check::expected["passed_through.type"] = 1;
  return check::finish();
#else
  (void)argc;
  if (check::rank == 0) std::puts("skipped: this MPI has no MPI_Allreduce_c");
  CHECK(!dlsym(RTLD_DEFAULT, "MPI_Allreduce_c"), "it is exported all the same");
  const int status = check::failures ? 1 : 77;
  MPI_Finalize();
  return status;
#endif
}
