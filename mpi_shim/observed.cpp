// Calls that are only looked at: what Horovod broadcasts and gathers, and which operations a program makes. All go
// through unchanged, in device memory as staged.hpp says.
#include "export.hpp"
#include "guard.hpp"
#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "next.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

int bcast(const NextMpi& next, void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  auto& observer = horovod::Observer::get();
  if (inside(next) || (!observer.detected() && (in_program_memory(buffer, buffer) || !stages())))
    return next.Bcast(buffer, count, datatype, root, comm);
  Staged staged;
  int rc = MPI_SUCCESS;
  if (stages() && comm != MPI_COMM_NULL)
    rc = guard(comm, [&] {
      const Ranks ranks(comm);
      const Extent extent = extent_of(count, datatype);
      if (ranks.is_root(root)) buffer = const_cast<void*>(staged.sent(buffer, extent));
      else if (ranks.has_part(root)) buffer = staged.received(buffer, extent, false);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  {
    const ReentrancyGuard handed_on(next);
    rc = next.Bcast(buffer, count, datatype, root, comm);
  }
  if (rc == MPI_SUCCESS && observer.detected())
    guard(comm, [&] { return observer.after_bcast(buffer, count, datatype, root, comm), MPI_SUCCESS; });
  return staged.finish(comm, rc);
}

int gatherv(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
            const int* recvcounts, const int* displs, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  auto& observer = horovod::Observer::get();
  if (inside(next) || (!observer.detected() && (in_program_memory({sendbuf, recvbuf}) || !stages())))
    return next.Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm);
  Staged staged;
  int rc = MPI_SUCCESS;
  if (stages() && comm != MPI_COMM_NULL)
    rc = guard(comm, [&] {
      const Ranks ranks(comm);
      if (ranks.has_part(root) && sendbuf != MPI_IN_PLACE)
        sendbuf = staged.sent(sendbuf, extent_of(sendcount, sendtype));
      if (ranks.is_root(root))
        recvbuf = staged.received(recvbuf, extent_of(ranks.count, recvcounts, displs, recvtype), true);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  {
    const ReentrancyGuard handed_on(next);
    rc = next.Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm);
  }
  if (rc == MPI_SUCCESS && root == 0 && observer.detected())
    guard(comm, [&] { return observer.after_gatherv(sendtype, comm), MPI_SUCCESS; });
  return staged.finish(comm, rc);
}

int op_create(const NextMpi& next, MPI_User_function* function, int commute, MPI_Op* op) {
  const int rc = next.Op_create(function, commute, op);
  if (rc == MPI_SUCCESS && !inside(next)) guard(MPI_COMM_WORLD, [&] { return note_op(function, *op), MPI_SUCCESS; });
  return rc;
}

int op_free(const NextMpi& next, MPI_Op* op) {
  const MPI_Op freed = op ? *op : MPI_OP_NULL;
  const std::uint64_t note = note_of(freed);
  const int rc = next.Op_free(op);
  if (rc == MPI_SUCCESS) forget_op(freed, note);
  return rc;
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Bcast, bcast, (void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm), buffer, count,
             datatype, root, comm)
CRIMP_EXPORT(Gatherv, gatherv,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
              const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm)
CRIMP_EXPORT(Op_create, op_create, (MPI_User_function * function, int commute, MPI_Op* op), function, commute, op)
CRIMP_EXPORT(Op_free, op_free, (MPI_Op * op), op)
