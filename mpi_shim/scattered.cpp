// Sums of which ranks receive shares: MPI_Reduce, MPI_Reduce_scatter, MPI_Reduce_scatter_block, and their forms for
// MPI_Count.
#include <optional>

#include "allreduce.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "passed_span.hpp"
#include "shared_sum.hpp"

namespace crimp {
namespace {

template <class Asked>
int scatter(const NextMpi& next, const Asked& asked) {
  if (inside(next)) return asked.sum(next, {asked.sendbuf, asked.recvbuf});
  static Runtime& runtime = Runtime::get();
  const MPI_Comm comm = asked.comm;
  if ((!runtime.running() && !ready()) || comm == MPI_COMM_NULL) return pass_shares(next, asked);

  PassReason why = PassReason::settings_differ;
  bool agreed = true, summed = false;
  Session* left = nullptr;
  std::optional<SharedCall> shared;
  int rc = MPI_SUCCESS;
  if (runtime.late())
    rc = guard(comm, [&] {
      agreed = ranks_agree(comm, &why);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  if (agreed && runtime.compressing()) shared = shared_call(asked, runtime.settings().min_count);
  if (shared)
    rc = guard(comm, [&] {
      AllreduceRequest request =
          request_of(shared->call, shared->eligible.dtype, asked.shares(shared->group), shared->group.rank);
      request.sum_by_mpi = [&next, &asked] { return pass_shares(next, asked); };  // no more, or it is an allocation
      request.left = &left;
      request.synchronize_all = horovod::Observer::get().detected();
      summed = sum(shared->call, shared->eligible, request, &why);
      return MPI_SUCCESS;
    });
  if (summed || rc != MPI_SUCCESS) return rc;
  // Of the others programs make many that were never meant.
  if (shared) runtime.report.passed(why);
  const PassedSpan span(why, shared ? shared->call.count : 0, shared.has_value());
  rc = pass_shares(next, asked);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

template <class Count>
int reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, Count count, MPI_Datatype datatype, MPI_Op op,
           int root, MPI_Comm comm) {
  return scatter(next, ReduceSum<Count>{sendbuf, recvbuf, count, datatype, op, root, comm});
}

template <class Count>
int reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const Count* recvcounts,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return scatter(next, ReduceScatterSum<Count>{sendbuf, recvbuf, recvcounts, datatype, op, comm});
}

template <class Count>
int reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, Count recvcount,
                         MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return scatter(next, ReduceScatterBlockSum<Count>{sendbuf, recvbuf, recvcount, datatype, op, comm});
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Reduce, reduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm),
             sendbuf, recvbuf, count, datatype, op, root, comm)
CRIMP_EXPORT(Reduce_scatter, reduce_scatter,
             (const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             sendbuf, recvbuf, recvcounts, datatype, op, comm)
CRIMP_EXPORT(Reduce_scatter_block, reduce_scatter_block,
             (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
             sendbuf, recvbuf, recvcount, datatype, op, comm)
#if MPI_VERSION >= 4
CRIMP_EXPORT(Reduce_c, reduce,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
              MPI_Comm comm),
             sendbuf, recvbuf, count, datatype, op, root, comm)
CRIMP_EXPORT(Reduce_scatter_c, reduce_scatter,
             (const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             sendbuf, recvbuf, recvcounts, datatype, op, comm)
CRIMP_EXPORT(Reduce_scatter_block_c, reduce_scatter_block,
             (const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
             sendbuf, recvbuf, recvcount, datatype, op, comm)
#endif
