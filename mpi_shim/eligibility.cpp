#include "eligibility.hpp"

#include <limits>

#include "half_ops.hpp"
#include "horovod/observer.hpp"
#include "mpi/half_type.hpp"
#include "mpi/runtime.hpp"

namespace crimp {

std::optional<Dtype> summed_type(MPI_Datatype type, MPI_Op op, PassReason* why) {
  if (op == MPI_SUM) {
    if (type == MPI_FLOAT) return Dtype::f32;
    if (type == MPI_DOUBLE) return Dtype::f64;
    // Fortran's handles are different ones of the same numbers.
    if (type == MPI_REAL || type == MPI_REAL4) return Dtype::f32;
    if (type == MPI_DOUBLE_PRECISION || type == MPI_REAL8) return Dtype::f64;
    *why = PassReason::type;
    return {};
  }
  if (half_types_exist()) {
    if (op == half_sum(Dtype::f16) && type == half_type(Dtype::f16)) return Dtype::f16;
    if (op == half_sum(Dtype::bf16) && type == half_type(Dtype::bf16)) return Dtype::bf16;
  }
  if (may_sum_halves(op)) {
    if (const auto halves = summed_halves(op, type)) return halves;
    *why = PassReason::type;
    return {};
  }
  *why = PassReason::operation;
  return {};
}

bool odd_arguments(const SumCall& call) {
  return call.comm == MPI_COMM_NULL || call.count == 0 || call.count > std::numeric_limits<std::int64_t>::max() ||
         (call.sendbuf == call.recvbuf && !call.shared) || !call.sendbuf || !call.recvbuf ||
         call.recvbuf == MPI_IN_PLACE;
}

Eligibility classify(const SumCall& call, bool with_codec) {
  const Runtime& runtime = Runtime::get();
  if (!with_codec && !runtime.compressing()) return {Way::pass, runtime.why_off(), {}};
  PassReason why = PassReason::type;
  const std::optional<Dtype> dtype = summed_type(call.datatype, call.op, &why);
  if (!dtype) return {Way::pass, why, {}};
  auto& horovod = horovod::Observer::get();
  if (horovod.detected() && horovod.is_adasum(*dtype, call.comm)) return {Way::pass, PassReason::adasum, *dtype};
  if (call.count < runtime.settings().min_count) return {Way::small, PassReason::small, *dtype};
  if (odd_arguments(call)) return {Way::pass, PassReason::odd_arguments, *dtype};
  return {Way::compress, PassReason::off, *dtype};
}

}  // namespace crimp
