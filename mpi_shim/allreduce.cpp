#include "allreduce.hpp"

#include "comm/runtime.hpp"
#include "comm/session.hpp"
#include "eligibility.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "self_check.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

// Out of line, so that the way past it stays short.
__attribute__((noinline)) bool ready() noexcept {
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

}  // namespace

int allreduce(const Next& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) noexcept {
  if (inside) return next.Allreduce(sendbuf, recvbuf, count, type, op, comm);
  const auto pass = [&] { return pass_allreduce(next, sendbuf, recvbuf, count, type, op, comm); };
  static Runtime& runtime = Runtime::get();
  if (!runtime.running() && !ready()) return next.Allreduce(sendbuf, recvbuf, count, type, op, comm);

  Pass why;
  std::optional<Dtype> dtype;
  bool agreed = true;
  if (runtime.late() && comm != MPI_COMM_NULL) {
    const int rc = guard(comm, [&] {
      agreed = runtime.session(comm, &why) || why == Pass::communicator;
      return MPI_SUCCESS;
    });
    if (rc != MPI_SUCCESS) return rc;
  }
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
      if (horovod.detected()) {
        const int rc = guard(comm, [&] {
          horovod.data_call(static_cast<std::uint64_t>(count), *dtype, comm);
          return MPI_SUCCESS;
        });
        if (rc != MPI_SUCCESS) return rc;
      }
    } else if (count < 0 || comm == MPI_COMM_NULL || odd_arguments(sendbuf, recvbuf, static_cast<std::uint64_t>(count))) {
      why = Pass::odd_arguments;
    } else {
      return guard(comm, [&] {
        AllreduceRequest request{sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, recvbuf, static_cast<std::uint64_t>(count), *dtype};
        request.sum_exactly = [&](void* buffer, std::uint64_t n) {
          return next.Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(n), type, op, comm);  // n <= count
        };
        request.settle_all = horovod.detected();
        std::optional<Layout> layout;
        if (horovod.detected()) layout = horovod.data_call(request.count, *dtype, comm);
        if (layout) request.layout = &*layout;
        Session* session = runtime.session(comm, &why, &request);
        if (session && session->allreduce(request, &why)) return MPI_SUCCESS;
        runtime.report.passed(why);
        return pass();
      });
    }
  }
  runtime.report.passed(why);
  auto& horovod = horovod::Observer::get();
  if (!horovod.detected()) return guard(comm, pass);  // staging needs memory
  return guard(comm, [&] {
    if (sendbuf == MPI_IN_PLACE) horovod.before_allreduce(recvbuf, count, type, op, comm);
    const int rc = pass();
    if (rc == MPI_SUCCESS) horovod.after_allreduce(recvbuf, count, type, op, comm);
    return rc;
  });
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
