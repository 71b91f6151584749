// MPI_Iallreduce, and persistent sums: MPI_Allreduce_init where the MPI has it, Open MPI 4's MPIX_Allreduce_init.
#include <vector>

#include "allreduce.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "mpi/runtime.hpp"
#include "next_counts.hpp"
#include "pending_sums.hpp"

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

namespace crimp {
namespace {

// Where something may have to be kept until it is complete, or a tool is behind us.
__attribute__((noinline)) int pass(const NextMpi& next, const SumCall& call, int count, MPI_Request* request) {
  return start_by_mpi(next, call.comm, {call.sendbuf, call.recvbuf}, false, request, stages_sum(count, call.datatype),
                      [&](Buffers b, std::vector<int>&) {
                        return next.Iallreduce(b.sendbuf, b.recvbuf, count, call.datatype, call.op, call.comm, request);
                      });
}

// A sum of Way::compress that Crimp carries: then *request is its, and it is under way or, persistent, to be started.
// Out of line, so that the others' way past it stays short.
__attribute__((noinline)) int carry(const SumCall& call, const Eligibility& eligible, MPI_Request* request,
                                    bool persistent, bool* carried, PassReason* why) {
  return guard(call.comm, [&] {
    *carried = carry(call, eligible, request_of(call, eligible.dtype), persistent, request, why);
    return MPI_SUCCESS;
  });
}

__attribute__((always_inline)) inline int iallreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count,
                                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                                     MPI_Request* request) {
  Runtime& runtime = Runtime::get();
  if (inside(next) || (!runtime.running() && !ready()))
    return next.Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
  const SumCall call{sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm};
  const Eligibility eligible = classify(call, false);
  PassReason why = eligible.why;
  if (request && eligible.way == Way::compress) {
    bool carried = false;
    const int rc = carry(call, eligible, request, false, &carried, &why);
    if (carried || rc != MPI_SUCCESS) return rc;
  }
  runtime.passed(request ? why : PassReason::odd_arguments);
  if (goes_straight(next, {sendbuf, recvbuf}))
    return next.Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
  return pass(next, call, count, request);
}

#if MPI_VERSION >= 4
// A count that no int holds is MPI's.
int iallreduce_c(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                 MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  if (!beyond_int(count)) return iallreduce(next, sendbuf, recvbuf, to_int(count), datatype, op, comm, request);
  if (next.Iallreduce_c && has_large_counts())
    return next.Iallreduce_c(sendbuf, recvbuf, count, datatype, op, comm, request);
  return too_many(comm);
}
#endif

#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
// Buffers in device memory that MPI cannot take are refused by whatever MPI does with them: none of these sums passed
// before there were programs with such memory and such requests.
int allreduce_init(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  const auto init = [&]() -> int {
    const ReentrancyGuard handed_on(next);
    if (!next.Allreduce_init) {  // a caller that finds this one by its name takes it, over an MPI that has none
      PMPI_Comm_call_errhandler(comm, MPI_ERR_UNSUPPORTED_OPERATION);
      return MPI_ERR_UNSUPPORTED_OPERATION;
    }
    return next.Allreduce_init(sendbuf, recvbuf, count, datatype, op, comm, info, request);
  };
  if (inside(next) || (!Runtime::get().running() && !ready()) || !request) return init();
  const SumCall call{sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm};
  const Eligibility eligible = classify(call, false);
  PassReason why = eligible.why;
  if (eligible.way == Way::compress) {
    bool carried = false;
    const int rc = carry(call, eligible, request, true, &carried, &why);
    if (carried || rc != MPI_SUCCESS) return rc;
  }
  Runtime::get().passed(why);
  return init();
}
#endif

#if MPI_VERSION >= 4
int allreduce_init_c(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                     MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  if (!beyond_int(count))
    return allreduce_init(next, sendbuf, recvbuf, to_int(count), datatype, op, comm, info, request);
  if (next.Allreduce_init_c && has_large_counts())
    return next.Allreduce_init_c(sendbuf, recvbuf, count, datatype, op, comm, info, request);
  return too_many(comm);
}
#endif

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Iallreduce, iallreduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, comm, request)
#if MPI_VERSION >= 4
CRIMP_EXPORT(Iallreduce_c, iallreduce_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, comm, request)
CRIMP_EXPORT(Allreduce_init, allreduce_init,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Info info, MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, comm, info, request)
CRIMP_EXPORT(Allreduce_init_c, allreduce_init_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Info info, MPI_Request* request),
             sendbuf, recvbuf, count, datatype, op, comm, info, request)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
CRIMP_EXPORT_X(Allreduce_init, allreduce_init,
               (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                MPI_Info info, MPI_Request* request),
               sendbuf, recvbuf, count, datatype, op, comm, info, request)
#endif
