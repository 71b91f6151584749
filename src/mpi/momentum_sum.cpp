#include "mpi/momentum_sum.hpp"

#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "core/convert.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "mpi/exact_sum.hpp"

namespace crimp {
namespace {

// Whether a rank lacks memory. The call itself would do for ranks that all receive all sums, but shares come by another
// of MPI's functions than what is summed here. Collective.
bool any_lacks(const AllreduceRequest& request, bool here) {
  float flag = here ? 1.0f : 0.0f;
  alignas(double) char one[sizeof(double)];
  narrow(request.dtype, &flag, one, 1);
  if (const int rc = request.sum_exactly(one, 1))
    throw Error(ErrorCode::transport_failed, "MPI_Allreduce failed with code " + std::to_string(rc), rc);
  widen(request.dtype, one, &flag, 1);
  return flag > 0;
}

}  // namespace

bool sum_with_momentum(const AllreduceRequest& request, const CallPlan& plan, CallValues& values, TensorMemory& memory,
                       int ranks, PassReason* why) {
  const Layout& layout = *plan.layout;
  std::vector<ExactTensor> tensors;
  std::span<char> packed;
  bool lacks = false;
  try {
    memory.begin_call();
    const std::size_t bytes = request.count * size_of(request.dtype);
    values.begin({}, Arena::padded(bytes));
    // Padding too, so that a rank that must leave the call to MPI meets the same count.
    for (std::size_t s = 0; s < layout.segments.size(); ++s) {
      ExactTensor& t = tensors.emplace_back(ExactTensor{&layout.segments[s], plan.momenta[s]});
      if (t.momentum)
        t.memory =
            memory
                .find(layout.source, *t.segment, false, ResidualShape::of(*t.momentum, t.segment->count), host_memory())
                .values;
    }
    if (!values.direct()) values.bodies().reserve(Arena::padded(bytes));
    packed = {reinterpret_cast<char*>(values.packed().take(bytes)), bytes};
  } catch (const std::exception& e) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true))
      logged("a call without momentum", [&] {
        log(LogLevel::warn, std::string(e.what()) +
                                "; this rank's part of this call, and of others for which that is so, has no momentum");
      });
    lacks = true;
  }
  if (request.shares ? any_lacks(request, lacks) : lacks) {
    *why = PassReason::memory;
    return false;
  }
  sum_exactly(request, tensors, values, packed, pack(request, tensors, values, packed, ranks));
  values.write_back(layout);
  memory.keep();
  return true;
}

}  // namespace crimp
