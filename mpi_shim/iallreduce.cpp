// MPI_Iallreduce, and persistent sums: MPI_Allreduce_init where the MPI has it, Open MPI 4's MPIX_Allreduce_init.
#include <utility>

#include "allreduce.hpp"
#include "core/reserve.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "half_ops.hpp"
#include "mpi/nonblocking.hpp"
#include "mpi/runtime.hpp"
#include "next_counts.hpp"
#include "progress.hpp"
#include "requests.hpp"
#include "staged.hpp"

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

namespace crimp {
namespace {

class PendingSum final : public Pending {
 public:
  PendingSum(std::unique_ptr<NonblockingSum> sum, bool persistent) : sum_(std::move(sum)), persistent_(persistent) {
    finished = persistent;
  }
  int finish(int rc) override {
    if (rc != MPI_SUCCESS) return rc;
    return guard(sum_->comm(), [&] { return sum_->finish(), MPI_SUCCESS; });
  }
  int start() override {
    finished = false;
    return guard(sum_->comm(), [&] { return sum_->start(), MPI_SUCCESS; });
  }
  bool persistent() const override { return persistent_; }

 private:
  const std::unique_ptr<NonblockingSum> sum_;
  const bool persistent_;
};

// A call that is MPI's, of buffers in device memory that it cannot take.
class PendingCopies final : public Pending {
 public:
  explicit PendingCopies(MPI_Comm comm) : comm_(comm) {}
  int finish(int rc) override { return staged.finish(comm_, rc); }
  Staged staged;

 private:
  const MPI_Comm comm_;
};

int pass(const NextMpi& next, const SumCall& call, int count, MPI_Request* request) {
  const auto started = [&](const void* sendbuf, void* recvbuf) {
    const ReentrancyGuard handed_on(next);
    return next.Iallreduce(sendbuf, recvbuf, count, call.datatype, call.op, call.comm, request);
  };
  if (!stages() || call.comm == MPI_COMM_NULL || count <= 0 || !request) return started(call.sendbuf, call.recvbuf);
  std::unique_ptr<PendingCopies> copies;
  const void* sendbuf = call.sendbuf;
  void* recvbuf = call.recvbuf;
  int rc = guard(call.comm, [&] {
    copies = std::make_unique<PendingCopies>(call.comm);
    const Extent extent = extent_of(count, call.datatype);
    sendbuf = copies->staged.sent(call.sendbuf, extent);
    recvbuf = copies->staged.received(call.recvbuf, extent, call.sendbuf == MPI_IN_PLACE);
    return MPI_SUCCESS;
  });
  if (rc == MPI_SUCCESS) rc = started(sendbuf, recvbuf);
  if (rc != MPI_SUCCESS || (sendbuf == call.sendbuf && recvbuf == call.recvbuf)) return rc;
  return guard(call.comm, [&] {
    std::unique_ptr<Pending> pending = std::move(copies);
    insist([&] { Requests::get().add(*request, std::move(pending)); });
    return MPI_SUCCESS;
  });
}

// A sum that Crimp carries: then *request is its, and it is under way or, persistent, to be started.
bool carry(const SumCall& call, MPI_Request* request, bool persistent, PassReason* why) {
  const Eligibility eligible = classify(call, false);
  *why = eligible.why;
  if (eligible.way != Way::compress) return false;
  if (may_sum_halves(call.op) && !sums_halves(call.op, call.datatype)) {
    *why = PassReason::operation;
    return false;
  }
  if (!persistent && start_in_lane(call, eligible, request)) return true;
  const auto sums = Runtime::get().nonblocking(call.comm, why);
  if (!sums) return false;
  const AllreduceRequest asked{call.sendbuf == MPI_IN_PLACE ? call.recvbuf : call.sendbuf, call.recvbuf, call.count,
                               eligible.dtype};
  auto sum = persistent ? sums->init(asked, why) : sums->start(asked, why);
  if (!sum) return false;
  const MPI_Request made = sum->request();
  std::unique_ptr<Pending> pending = insist([&] { return std::make_unique<PendingSum>(std::move(sum), persistent); });
  insist([&] { Requests::get().add(made, std::move(pending)); });
  *request = made;
  return true;
}

int iallreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
               MPI_Comm comm, MPI_Request* request) {
  if (inside(next) || (!Runtime::get().running() && !ready()))
    return next.Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
  const SumCall call{sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm};
  bool carried = false;
  PassReason why = PassReason::odd_arguments;
  if (request) {
    const int rc = guard(comm, [&] { return carried = carry(call, request, false, &why), MPI_SUCCESS; });
    if (carried || rc != MPI_SUCCESS) return rc;
  }
  Runtime::get().report.passed(why);
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
  const auto init = [&] {
    const ReentrancyGuard handed_on(next);
    return next.Allreduce_init(sendbuf, recvbuf, count, datatype, op, comm, info, request);
  };
  if (inside(next) || (!Runtime::get().running() && !ready()) || !request) return init();
  const SumCall call{sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm};
  bool carried = false;
  PassReason why = PassReason::odd_arguments;
  const int rc = guard(comm, [&] { return carried = carry(call, request, true, &why), MPI_SUCCESS; });
  if (carried || rc != MPI_SUCCESS) return rc;
  Runtime::get().report.passed(why);
  return init();
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
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
CRIMP_EXPORT_X(Allreduce_init, allreduce_init,
               (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                MPI_Info info, MPI_Request* request),
               sendbuf, recvbuf, count, datatype, op, comm, info, request)
#endif
