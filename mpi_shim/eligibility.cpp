#include "eligibility.hpp"

#include "half_ops.hpp"
#include "mpi/half_type.hpp"

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

}  // namespace crimp
