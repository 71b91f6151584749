// MPI_Allreduce_c, where MPI has it. A caller that finds the symbol uses it, so over an older MPI, which a library
// built for a newer one may meet, it does all of the function's work.
#include "mpi/large_counts.hpp"

#include <cstdint>

#include "allreduce.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "passed_span.hpp"
#include "staged.hpp"

#if MPI_VERSION >= 4
namespace crimp {
namespace {

int small_by_c(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next_mpi().Allreduce_c(sendbuf, recvbuf, count, datatype, op, comm);
}
int small_by_pmpi_c(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next_pmpi().Allreduce_c(sendbuf, recvbuf, count, datatype, op, comm);
}

// What comes by MPI_Allreduce_c goes on by MPI_Allreduce_c: to tools behind us, and into MPI's errors.
const NextMpi& by_c(const NextMpi& next) {
  if (!has_large_counts()) return next;
  const auto with = [](NextMpi n, auto small) {
    if (n.Allreduce_c) n.Allreduce = small;
    return n;
  };
  static const NextMpi mpi = with(next_mpi(), &small_by_c), pmpi = with(next_pmpi(), &small_by_pmpi_c);
  return next.pmpi ? pmpi : mpi;
}

// Through MPI, elements of any type. Whether in one call or in several must not depend on where the buffers are.
int pass_large(const NextMpi& next, const SumCall& call) {
  if (next.Allreduce_c && has_large_counts()) {
    const auto count = static_cast<MPI_Count>(call.count);
    return hand_on(call.comm, {call.sendbuf, call.recvbuf}, stages_sum(count, call.datatype), [&](Buffers b) {
      const ReentrancyGuard handed_on(next);
      return next.Allreduce_c(b.sendbuf, b.recvbuf, count, call.datatype, call.op, call.comm);
    });
  }
  MPI_Aint low = 0, extent = 0;
  if (const int rc = PMPI_Type_get_extent(call.datatype, &low, &extent)) return rc;
  return in_parts(call.count, [&](std::uint64_t at, int n) {
    const auto bytes = static_cast<std::ptrdiff_t>(at) * extent;
    const void* from = call.sendbuf == MPI_IN_PLACE ? call.sendbuf : static_cast<const char*>(call.sendbuf) + bytes;
    return pass_allreduce(next, from, static_cast<char*>(call.recvbuf) + bytes, n, call.datatype, call.op, call.comm);
  });
}

// One of more elements than an int counts, which Horovod never makes.
int allreduce_large(const NextMpi& next, const SumCall& call) {
  Runtime& runtime = Runtime::get();
  if (inside(next) || !runtime.running()) return pass_large(next, call);
  PassReason why = PassReason::settings_differ;
  Session* left = nullptr;
  bool summed = false;
  int rc = guard(call.comm, [&] {
    if (!ranks_agree(call.comm, &why)) return MPI_SUCCESS;
    const Eligibility eligible = classify(call, false);
    why = eligible.why;
    if (eligible.way != Way::compress) return MPI_SUCCESS;
    AllreduceRequest request = request_of(call, eligible.dtype);
    request.sum_exactly = [&](void* buffer, std::uint64_t n) {
      return pass_large(next, {MPI_IN_PLACE, buffer, n, call.datatype, call.op, call.comm});
    };
    request.sum_by_mpi = [&] { return pass_large(next, call); };
    request.left = &left;
    summed = sum(call, eligible, request, &why);
    return MPI_SUCCESS;
  });
  if (summed || rc != MPI_SUCCESS) return rc;
  runtime.report.passed(why);
  const PassedSpan span(why, call.count);
  rc = pass_large(next, call);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

int allreduce_c(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                MPI_Op op, MPI_Comm comm) {
  if (count > static_cast<MPI_Count>(most_elements()))
    return allreduce_large(next, {sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm});
  const int small = count < 0 ? -1 : static_cast<int>(count);  // a negative one is MPI's error
  return allreduce(by_c(next), sendbuf, recvbuf, small, datatype, op, comm);
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Allreduce_c, allreduce_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
             sendbuf, recvbuf, count, datatype, op, comm)
#endif
