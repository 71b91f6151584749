#include "eligibility.hpp"

#include "half_ops.hpp"
#include "mpi/half_type.hpp"

namespace crimp {

std::optional<Dtype> type_of_user_sum(MPI_Datatype type, MPI_Op op, PassReason* why) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16})
    if (are_half_handles(type, op, half)) return half;
  if (may_sum_halves(op)) {
    if (const auto halves = summed_halves(op, type)) return halves;
    *why = PassReason::type;
    return {};
  }
  *why = PassReason::operation;
  return {};
}

std::optional<Dtype> type_of_real(MPI_Datatype type, PassReason* why) {
  const auto bytes_of = [](MPI_Datatype of) {
    int bytes = 0;
    return PMPI_Type_size(of, &bytes) == MPI_SUCCESS ? bytes : 0;
  };
  static const int real = bytes_of(MPI_REAL), twice = bytes_of(MPI_DOUBLE_PRECISION);
  const int bytes = type == MPI_REAL ? real : twice;
  if (bytes == 4) return Dtype::f32;
  if (bytes == 8) return Dtype::f64;
  *why = PassReason::type;
  return {};
}

}  // namespace crimp
