#include "mpi/momentum_sum.hpp"

#include <exception>
#include <string>
#include <vector>

#include "core/log.hpp"
#include "mpi/exact_sum.hpp"

namespace crimp {

bool sum_with_momentum(const AllreduceRequest& request, const CallPlan& plan, CallValues& values, TensorMemory& memory,
                       int ranks, PassReason* why) {
  const Layout& layout = *plan.layout;
  std::vector<ExactTensor> tensors;
  std::span<char> packed;
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
    if (!values.direct()) values.bodies().reserve(bytes);
    packed = {reinterpret_cast<char*>(values.packed().take(bytes)), bytes};
  } catch (const std::exception& e) {
    log(LogLevel::warn, std::string(e.what()) + "; this rank's part of the call has no momentum");
    *why = PassReason::memory;
    return false;
  }
  sum_exactly(request, tensors, values, packed, pack(request, tensors, values, packed, ranks));
  values.write_back(layout);
  memory.keep();
  return true;
}

}  // namespace crimp
