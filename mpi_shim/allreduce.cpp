#include "allreduce.hpp"

#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "eligibility.hpp"
#include "guard.hpp"
#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "self_check.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

// Out of line, so that the way past it stays short.
__attribute__((noinline)) bool ready() {
  Runtime& runtime = Runtime::get();
  if (!runtime.started()) {
    int initialized = 0;
    PMPI_Initialized(&initialized);
    if (!initialized) return false;
    guard(MPI_COMM_WORLD, [&] {
      runtime.start(false);  // loaded after MPI_Init
      check_at_start();
      return MPI_SUCCESS;
    });
  }
  return runtime.running();
}

// The call goes through MPI; Horovod's are looked at before and after.
int pass(const Next& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  auto& horovod = horovod::Observer::get();
  if (!horovod.detected()) return pass_allreduce(next, sendbuf, recvbuf, count, type, op, comm);
  int rc = MPI_SUCCESS;
  if (sendbuf == MPI_IN_PLACE) rc = guard(comm, [&] { return horovod.before_allreduce(recvbuf, count, type, op, comm), MPI_SUCCESS; });
  if (rc == MPI_SUCCESS) rc = pass_allreduce(next, sendbuf, recvbuf, count, type, op, comm);
  if (rc != MPI_SUCCESS) return rc;
  return guard(comm, [&] { return horovod.after_allreduce(recvbuf, count, type, op, comm), MPI_SUCCESS; });
}

}  // namespace

int allreduce(const Next& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (inside(next)) return next.Allreduce(sendbuf, recvbuf, count, type, op, comm);
  static Runtime& runtime = Runtime::get();
  if (!runtime.running() && !ready()) return next.Allreduce(sendbuf, recvbuf, count, type, op, comm);

  Pass why;
  std::optional<Dtype> dtype;
  bool agreed = true, summed = false;
  int rc = MPI_SUCCESS;
  const auto request_of = [&](bool settle_all) {
    AllreduceRequest request{sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, static_cast<std::uint64_t>(count), *dtype};
    request.sum_exactly = [&](void* buffer, std::uint64_t n) {
      return next.Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(n), type, op, comm);  // n <= count
    };
    request.settle_all = settle_all;
    return request;
  };
  if (runtime.late() && comm != MPI_COMM_NULL)
    rc = guard(comm, [&] {
      agreed = runtime.session(comm, &why) || why == Pass::communicator;
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  if (!agreed) {
    // why is settings_differ
  } else if (!runtime.compressing()) {
    why = runtime.why_off();
  } else if ((dtype = summed_type(type, op, &why))) {
    auto& horovod = horovod::Observer::get();
    if (horovod.detected() && horovod.is_adasum(*dtype, comm)) {
      why = Pass::adasum;
    } else if (count >= 0 && static_cast<std::uint64_t>(count) < runtime.settings().min_count) {
      why = Pass::small;
      // Horovod's calls are known by their order, so its decoder hears of the small ones too.
      if (horovod.detected())
        rc = guard(comm, [&] {
          const auto layout = horovod.data_call(static_cast<std::uint64_t>(count), *dtype, comm);
          Session* session = runtime.momentum() ? runtime.session(comm, &why) : runtime.known_session(comm);
          why = Pass::small;
          if (!layout || odd_arguments(sendbuf, recvbuf, static_cast<std::uint64_t>(count))) return MPI_SUCCESS;
          if (!session || (may_sum_halves(op) && !sums_halves(op, type))) return MPI_SUCCESS;
          AllreduceRequest request = request_of(true);
          request.layout = layout;
          summed = session->allreduce_small(request);
          return MPI_SUCCESS;
        });
    } else if (count < 0 || comm == MPI_COMM_NULL || odd_arguments(sendbuf, recvbuf, static_cast<std::uint64_t>(count))) {
      why = Pass::odd_arguments;
    } else {
      rc = guard(comm, [&] {
        if (may_sum_halves(op) && !sums_halves(op, type)) {
          why = Pass::operation;
          return MPI_SUCCESS;
        }
        AllreduceRequest request = request_of(horovod.detected());
        if (horovod.detected()) request.layout = horovod.data_call(request.count, *dtype, comm);
        Session* session = runtime.session(comm, &why, &request);
        summed = session && session->allreduce(request, &why);
        return MPI_SUCCESS;
      });
    }
  }
  if (summed || rc != MPI_SUCCESS) return rc;
  runtime.report.passed(why);
  return pass(next, sendbuf, recvbuf, count, type, op, comm);
}

}  // namespace crimp

extern "C" {

__attribute__((visibility("default"))) int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                                         MPI_Comm comm) {
  return crimp::allreduce(crimp::next_mpi(), sendbuf, recvbuf, count, type, op, comm);
}

__attribute__((visibility("default"))) int PMPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op,
                                                          MPI_Comm comm) {
  return crimp::allreduce(crimp::next_pmpi(), sendbuf, recvbuf, count, type, op, comm);
}
}
