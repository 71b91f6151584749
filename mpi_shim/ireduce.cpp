// Sums of which ranks receive shares, and that do not block: MPI_Ireduce, MPI_Ireduce_scatter,
// MPI_Ireduce_scatter_block, and their forms for MPI_Count.
#include <optional>
#include <vector>

#include "allreduce.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "mpi/runtime.hpp"
#include "pending_sums.hpp"
#include "shared_sum.hpp"

namespace crimp {
namespace {

// One that Crimp may carry. Out of line, so that the others' way past it stays short.
template <class Asked>
__attribute__((noinline)) int carry(const Asked& asked, const SharedCall& shared, MPI_Request* request, bool* carried) {
  PassReason why = PassReason::off;
  const int rc = guard(asked.comm, [&] {
    const AllreduceRequest of =
        request_of(shared.call, shared.eligible.dtype, asked.shares(shared.group), shared.group.rank);
    *carried = carry(shared.call, shared.eligible, of, false, request, &why);
    return MPI_SUCCESS;
  });
  if (!*carried && rc == MPI_SUCCESS) Runtime::get().report.passed(why);
  return rc;
}

// All but never_ours(). Out of line for the same reason.
template <class Asked>
__attribute__((noinline)) int start(const NextMpi& next, const Asked& asked, MPI_Request* request) {
  Runtime& runtime = Runtime::get();
  const MPI_Comm comm = asked.comm;
  const bool ours = !inside(next) && (runtime.running() || ready()) && comm != MPI_COMM_NULL && request;
  if (ours && runtime.compressing())
    if (const auto shared = shared_call(asked, runtime.settings().min_count)) {
      bool carried = false;
      const int rc = carry(asked, *shared, request, &carried);
      if (carried || rc != MPI_SUCCESS) return rc;
    }
  const Buffers buffers{asked.sendbuf, asked.recvbuf};
  std::vector<int> none;
  if (!asked.keeps_ints(next) && goes_straight(next, buffers)) return asked.start(next, buffers, none, request);
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (ours) asked.stage(staged, ranks, b);
  };
  return start_by_mpi(next, comm, buffers, asked.keeps_ints(next), request, stage,
                      [&](Buffers b, std::vector<int>& ints) { return asked.start(next, b, ints, request); });
}

template <class Count>
__attribute__((always_inline)) inline int ireduce(const NextMpi& next, const void* sendbuf, void* recvbuf, Count count,
                                                  MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
                                                  MPI_Request* request) {
  if (never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_ireduce(next, sendbuf, recvbuf, count, datatype, op, root, comm, request);
  return start(next, ReduceSum<Count>{sendbuf, recvbuf, count, datatype, op, root, comm}, request);
}

template <class Count>
__attribute__((always_inline)) inline int ireduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf,
                                                          const Count* recvcounts, MPI_Datatype datatype, MPI_Op op,
                                                          MPI_Comm comm, MPI_Request* request) {
  std::vector<int> none;
  if (!needs_ints(next, recvcounts) && never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_ireduce_scatter(next, sendbuf, recvbuf, recvcounts, none, datatype, op, comm, request);
  return start(next, ReduceScatterSum<Count>{sendbuf, recvbuf, recvcounts, datatype, op, comm}, request);
}

template <class Count>
__attribute__((always_inline)) inline int ireduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf,
                                                                Count recvcount, MPI_Datatype datatype, MPI_Op op,
                                                                MPI_Comm comm, MPI_Request* request) {
  if (never_ours(next, {sendbuf, recvbuf}, datatype, op))
    return next_ireduce_scatter_block(next, sendbuf, recvbuf, recvcount, datatype, op, comm, request);
  return start(next, ReduceScatterBlockSum<Count>{sendbuf, recvbuf, recvcount, datatype, op, comm}, request);
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Ireduce, ireduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
              MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, root, comm, request)
CRIMP_EXPORT(Ireduce_scatter, ireduce_scatter,
             (const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             sendbuf, recvbuf, recvcounts, datatype, op, comm, request)
CRIMP_EXPORT(Ireduce_scatter_block, ireduce_scatter_block,
             (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request* request),
             sendbuf, recvbuf, recvcount, datatype, op, comm, request)
#if MPI_VERSION >= 4
CRIMP_EXPORT(Ireduce_c, ireduce,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
              MPI_Comm comm, MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, root, comm, request)
CRIMP_EXPORT(Ireduce_scatter_c, ireduce_scatter,
             (const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             sendbuf, recvbuf, recvcounts, datatype, op, comm, request)
CRIMP_EXPORT(Ireduce_scatter_block_c, ireduce_scatter_block,
             (const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request* request),
             sendbuf, recvbuf, recvcount, datatype, op, comm, request)
#endif
