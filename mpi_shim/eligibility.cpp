#include "eligibility.hpp"

#include "half_ops.hpp"
#include "mpi/half_type.hpp"

namespace crimp {

std::optional<Dtype> type_of_user_sum(MPI_Datatype type, MPI_Op op, PassReason* why) {
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
