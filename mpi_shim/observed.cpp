// Calls that are only looked at: what Horovod broadcasts and gathers, and which operations a program makes. All go through unchanged, in device
// memory as staged.hpp says.
#include "guard.hpp"
#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "next.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

int bcast(const Next& next, void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  auto& observer = horovod::Observer::get();
  if (inside(next) || (!observer.detected() && !stages())) return next.Bcast(buffer, count, type, root, comm);
  Staged staged;
  int rc = MPI_SUCCESS;
  if (stages() && comm != MPI_COMM_NULL)
    rc = guard(comm, [&] {
      int rank = MPI_PROC_NULL, inter = 0;
      PMPI_Comm_test_inter(comm, &inter);
      PMPI_Comm_rank(comm, &rank);
      const bool sends = inter ? root == MPI_ROOT : root == rank;
      if (root != MPI_PROC_NULL)
        buffer = sends ? const_cast<void*>(staged.sent(buffer, extent_of(count, type))) : staged.received(buffer, extent_of(count, type), false);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  {
    const Inside handed_on(next);
    rc = next.Bcast(buffer, count, type, root, comm);
  }
  if (rc == MPI_SUCCESS && observer.detected()) guard(comm, [&] { return observer.after_bcast(buffer, count, type, root, comm), MPI_SUCCESS; });
  return staged.finish(comm, rc);
}

int gatherv(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, const int* counts, const int* places,
            MPI_Datatype received, int root, MPI_Comm comm) {
  auto& observer = horovod::Observer::get();
  if (inside(next) || (!observer.detected() && !stages())) return next.Gatherv(send, count, type, receive, counts, places, received, root, comm);
  Staged staged;
  int rc = MPI_SUCCESS;
  if (stages() && comm != MPI_COMM_NULL)
    rc = guard(comm, [&] {
      int rank = MPI_PROC_NULL, inter = 0, size = 0;
      PMPI_Comm_test_inter(comm, &inter);
      PMPI_Comm_rank(comm, &rank);
      inter ? PMPI_Comm_remote_size(comm, &size) : PMPI_Comm_size(comm, &size);
      const bool is_root = inter ? root == MPI_ROOT : root == rank;
      if (root != MPI_PROC_NULL && !(inter && is_root)) send = staged.sent(send, extent_of(count, type));
      if (is_root) receive = staged.received(receive, extent_of(size, counts, places, received), true);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  {
    const Inside handed_on(next);
    rc = next.Gatherv(send, count, type, receive, counts, places, received, root, comm);
  }
  if (rc == MPI_SUCCESS && root == 0 && observer.detected()) guard(comm, [&] { return observer.after_gatherv(type, comm), MPI_SUCCESS; });
  return staged.finish(comm, rc);
}

int op_create(const Next& next, MPI_User_function* function, int commute, MPI_Op* op) {
  const int rc = next.Op_create(function, commute, op);
  if (rc == MPI_SUCCESS && !inside(next)) guard(MPI_COMM_WORLD, [&] { return note_op(function, *op), MPI_SUCCESS; });
  return rc;
}

int op_free(const Next& next, MPI_Op* op) {
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
