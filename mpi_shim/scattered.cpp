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

// One that Crimp may carry. Out of line, so that the others' way past it stays short.
template <class Asked>
__attribute__((noinline)) int sum_or_pass(const NextMpi& next, const Asked& asked, const SharedCall& shared) {
  PassReason why = PassReason::settings_differ;
  bool summed = false;
  Session* left = nullptr;
  int rc = guard(asked.comm, [&] {
    AllreduceRequest request =
        request_of(shared.call, shared.eligible.dtype, asked.shares(shared.group), shared.group.rank);
    request.sum_by_mpi = [&next, &asked] { return pass_shares(next, asked); };  // no more, or it is an allocation
    request.left = &left;
    request.synchronize_all = horovod::Observer::get().detected();
    summed = sum(shared.call, shared.eligible, request, &why);
    return MPI_SUCCESS;
  });
  if (summed || rc != MPI_SUCCESS) return rc;
  Runtime::get().report.passed(why);
  const PassedSpan span(why, shared.call.count);
  rc = pass_shares(next, asked);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

// Loaded after MPI_Init. A code of its own ends the call.
__attribute__((noinline)) int agree(MPI_Comm comm, bool* agreed) {
  PassReason why = PassReason::settings_differ;
  return guard(comm, [&] {
    *agreed = ranks_agree(comm, &why);
    return MPI_SUCCESS;
  });
}

// All but never_ours(). Out of line as sum_or_pass().
template <class Asked>
__attribute__((noinline)) int scatter(const NextMpi& next, const Asked& asked) {
  const Buffers buffers{asked.sendbuf, asked.recvbuf};
  if (inside(next)) return asked.sum(next, buffers);
  Runtime& runtime = Runtime::get();
  if ((!runtime.running() && !ready()) || asked.comm == MPI_COMM_NULL) return pass_shares(next, asked);
  bool agreed = true;
  if (runtime.late())
    if (const int rc = agree(asked.comm, &agreed); rc != MPI_SUCCESS) return rc;
  // Of what is none programs make many that were never meant: those are not counted.
  if (agreed && runtime.compressing())
    if (const auto shared = shared_call(asked, runtime.settings().min_count)) return sum_or_pass(next, asked, *shared);
  if (goes_straight(next, buffers)) return asked.sum(next, buffers);
  return pass_shares(next, asked);
}

template <class Count>
__attribute__((always_inline)) inline int reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, Count count,
                                                 MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm) {
  if (never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_reduce(next, sendbuf, recvbuf, count, datatype, op, root, comm);
  return scatter(next, ReduceSum<Count>{sendbuf, recvbuf, count, datatype, op, root, comm});
}

template <class Count>
__attribute__((always_inline)) inline int reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf,
                                                         const Count* recvcounts, MPI_Datatype datatype, MPI_Op op,
                                                         MPI_Comm comm) {
  if (never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_reduce_scatter(next, sendbuf, recvbuf, recvcounts, datatype, op, comm);
  return scatter(next, ReduceScatterSum<Count>{sendbuf, recvbuf, recvcounts, datatype, op, comm});
}

template <class Count>
__attribute__((always_inline)) inline int reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf,
                                                               Count recvcount, MPI_Datatype datatype, MPI_Op op,
                                                               MPI_Comm comm) {
  if (never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_reduce_scatter_block(next, sendbuf, recvbuf, recvcount, datatype, op, comm);
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
