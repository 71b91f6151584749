#include "allreduce.hpp"

#include <utility>

#include "export.hpp"
#include "guard.hpp"
#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "passed_span.hpp"
#include "self_check.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

// The call goes through MPI; Horovod's are looked at before and after.
int pass(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
         MPI_Comm comm) {
  auto& horovod = horovod::Observer::get();
  if (!horovod.detected()) return pass_allreduce(next, sendbuf, recvbuf, count, datatype, op, comm);
  int rc = MPI_SUCCESS;
  if (sendbuf == MPI_IN_PLACE)
    rc = guard(comm, [&] { return horovod.before_allreduce(recvbuf, count, datatype, op, comm), MPI_SUCCESS; });
  const auto begin = horovod.times();
  if (rc == MPI_SUCCESS) rc = pass_allreduce(next, sendbuf, recvbuf, count, datatype, op, comm);
  if (rc != MPI_SUCCESS) return rc;
  return guard(comm, [&] {
    horovod.after_allreduce(recvbuf, count, datatype, op, comm);
    horovod.called(begin, count, datatype, comm);
    return MPI_SUCCESS;
  });
}

// Horovod's calls are known by their order, so its decoder hears of the small ones too.
bool sum_mpi(const NextMpi& next, const SumCall& call, const Eligibility& eligible, PassReason* why, Session** left) {
  auto& horovod = horovod::Observer::get();
  AllreduceRequest request = request_of(call, eligible.dtype);
  request.sum_exactly = [&](void* buffer, std::uint64_t n) {
    return next.Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(n), call.datatype, call.op, call.comm);  // n <= count
  };
  request.sum_by_mpi = [&next, &call] {  // no more, or it is an allocation
    return pass_allreduce(next, call.sendbuf, call.recvbuf, static_cast<int>(call.count), call.datatype, call.op,
                          call.comm);
  };
  request.left = left;
  request.synchronize_all = horovod.detected();
  if (!horovod.detected()) return sum(call, eligible, request, why);
  request.layout = horovod.data_call(call.recvbuf, call.count, eligible.dtype, call.comm);
  const auto begin = horovod.times();
  const bool summed = sum(call, eligible, request, why);
  if (summed) horovod.called(begin, static_cast<int>(call.count), call.datatype, call.comm);
  return summed;
}

}  // namespace

// Out of line, so that the way past it stays short.
__attribute__((noinline)) bool ready() {
  if (other_mpi) return false;
  Runtime& runtime = Runtime::get();
  if (!runtime.started()) {
    if (!has_mpi()) {
      check_before_init();
      return false;
    }
    guard(MPI_COMM_WORLD, [&] {
      runtime.start(false);  // loaded after MPI_Init
      check_at_start();
      return MPI_SUCCESS;
    });
  }
  return runtime.running();
}

bool ranks_agree(MPI_Comm comm, PassReason* why) {
  Runtime& runtime = Runtime::get();
  return !runtime.late() || comm == MPI_COMM_NULL || runtime.session(comm, why) || *why == PassReason::communicator;
}

AllreduceRequest request_of(const SumCall& call, Dtype dtype, std::shared_ptr<const Shares> shares, int rank) {
  AllreduceRequest request{call.sendbuf == MPI_IN_PLACE ? call.recvbuf : call.sendbuf, call.recvbuf, call.count, dtype};
  request.shares = std::move(shares);
  request.rank = rank;
  if (request.own().count() == 0) request.receive = nullptr;
  return request;
}

bool sum(const SumCall& call, const Eligibility& eligible, const AllreduceRequest& request, PassReason* why) {
  Runtime& runtime = Runtime::get();
  // An operation may only look like a sum. It is the program's code, so it is tried only where a call could be
  // compressed.
  const auto is_sum = [&] { return !may_sum_halves(call.op) || sums_halves(call.op, call.datatype); };
  if (eligible.way == Way::compress) {
    const bool sums = is_sum();
    if (!sums) *why = PassReason::operation;
    Session* session = sums ? runtime.session(call.comm, why, &request) : nullptr;
    return session && session->allreduce(request, why);
  }
  *why = PassReason::small;
  if (!request.layout || call.comm == MPI_COMM_NULL || !runtime.may_keep_momentum()) return false;
  PassReason unused = PassReason::small;
  Session* session =
      runtime.momentum() ? runtime.session(call.comm, &unused, &request) : runtime.known_session(call.comm);
  return session && !odd_arguments(call) && is_sum() && session->allreduce_small(request);
}

namespace {

__attribute__((noinline)) int pass_on(const NextMpi& next, const SumCall& call, PassReason why, Session* left) {
  Runtime::get().passed(why);
  const PassedSpan span(why, call.count);
  const int rc =
      pass(next, call.sendbuf, call.recvbuf, static_cast<int>(call.count), call.datatype, call.op, call.comm);
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

// Out of line as well, so that calls which pass have a small frame.
__attribute__((noinline)) int sum_or_pass(const NextMpi& next, const SumCall& call, const Eligibility& eligible) {
  PassReason why = eligible.why;
  bool summed = false;
  Session* left = nullptr;
  const int rc = guard(call.comm, [&] {
    summed = sum_mpi(next, call, eligible, &why, &left);
    return MPI_SUCCESS;
  });
  return summed || rc != MPI_SUCCESS ? rc : pass_on(next, call, why, left);
}

// Loaded after MPI_Init.
__attribute__((noinline)) int agree(MPI_Comm comm, PassReason* why, bool* agreed) {
  return guard(comm, [&] {
    *agreed = ranks_agree(comm, why);
    return MPI_SUCCESS;
  });
}

// Inlined where a program enters: every frame that is passed costs nanoseconds.
__attribute__((always_inline)) inline int enter_allreduce(const NextMpi& next, const void* sendbuf, void* recvbuf,
                                                          int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  Runtime& runtime = Runtime::get();
  if (inside(next) || (!runtime.running() && !ready()))
    return next.Allreduce(sendbuf, recvbuf, count, datatype, op, comm);

  const SumCall call{sendbuf, recvbuf, static_cast<std::uint64_t>(count), datatype, op, comm};
  if (runtime.late()) {
    PassReason why = PassReason::settings_differ;
    bool agreed = true;
    if (const int rc = agree(comm, &why, &agreed); rc != MPI_SUCCESS) return rc;
    if (!agreed) return pass_on(next, call, why, nullptr);
  }
  const Eligibility eligible = classify(call, false);
  const bool horovod = horovod::Observer::get().detected();
  if (eligible.way == Way::compress || (eligible.way == Way::small && horovod))
    return sum_or_pass(next, call, eligible);
  if (!horovod && !runtime.trace() && goes_straight(next, {sendbuf, recvbuf})) {
    runtime.passed(eligible.why);
    return next.Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  }
  return pass_on(next, call, eligible.why, nullptr);
}

}  // namespace

int allreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm) {
  return enter_allreduce(next, sendbuf, recvbuf, count, datatype, op, comm);
}

}  // namespace crimp

CRIMP_EXPORT(Allreduce, enter_allreduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm), sendbuf,
             recvbuf, count, datatype, op, comm)
