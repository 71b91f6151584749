// Calls that are only looked at: what Horovod broadcasts and gathers, and which operations a program makes. All go through unchanged.
#include "guard.hpp"
#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "next.hpp"

namespace crimp {
namespace {

template <class Call>
int call_inside(Call call) {
  const Inside here;
  return call();
}

int bcast(const Next& next, void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) noexcept {
  auto& observer = horovod::Observer::get();
  if (inside || !observer.detected()) return next.Bcast(buffer, count, type, root, comm);
  const int rc = call_inside([&] { return next.Bcast(buffer, count, type, root, comm); });
  if (rc == MPI_SUCCESS) guard(comm, [&] { return observer.after_bcast(buffer, count, type, root, comm), MPI_SUCCESS; });
  return rc;
}

int gatherv(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, const int* counts, const int* places,
            MPI_Datatype received, int root, MPI_Comm comm) noexcept {
  auto& observer = horovod::Observer::get();
  if (inside || !observer.detected()) return next.Gatherv(send, count, type, receive, counts, places, received, root, comm);
  const int rc = call_inside([&] { return next.Gatherv(send, count, type, receive, counts, places, received, root, comm); });
  if (rc == MPI_SUCCESS && root == 0) guard(comm, [&] { return observer.after_gatherv(type, comm), MPI_SUCCESS; });
  return rc;
}

int op_create(const Next& next, MPI_User_function* function, int commute, MPI_Op* op) noexcept {
  if (inside) return next.Op_create(function, commute, op);
  const int rc = call_inside([&] { return next.Op_create(function, commute, op); });
  if (rc == MPI_SUCCESS) guard(MPI_COMM_WORLD, [&] { return note_op(function, *op), MPI_SUCCESS; });
  return rc;
}

int op_free(const Next& next, MPI_Op* op) noexcept {
  if (op) forget_op(*op);
  return next.Op_free(op);
}

}  // namespace
}  // namespace crimp

extern "C" {
#define CRIMP_EXPORT __attribute__((visibility("default")))
using namespace crimp;

CRIMP_EXPORT int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return bcast(next_mpi(), buffer, count, type, root, comm);
}
CRIMP_EXPORT int PMPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return bcast(next_pmpi(), buffer, count, type, root, comm);
}
CRIMP_EXPORT int MPI_Gatherv(const void* send, int count, MPI_Datatype type, void* receive, const int counts[], const int places[],
                             MPI_Datatype received, int root, MPI_Comm comm) {
  return gatherv(next_mpi(), send, count, type, receive, counts, places, received, root, comm);
}
CRIMP_EXPORT int PMPI_Gatherv(const void* send, int count, MPI_Datatype type, void* receive, const int counts[], const int places[],
                              MPI_Datatype received, int root, MPI_Comm comm) {
  return gatherv(next_pmpi(), send, count, type, receive, counts, places, received, root, comm);
}
CRIMP_EXPORT int MPI_Op_create(MPI_User_function* function, int commute, MPI_Op* op) {
  return op_create(next_mpi(), function, commute, op);
}
CRIMP_EXPORT int PMPI_Op_create(MPI_User_function* function, int commute, MPI_Op* op) {
  return op_create(next_pmpi(), function, commute, op);
}
CRIMP_EXPORT int MPI_Op_free(MPI_Op* op) { return op_free(next_mpi(), op); }
CRIMP_EXPORT int PMPI_Op_free(MPI_Op* op) { return op_free(next_pmpi(), op); }
}
