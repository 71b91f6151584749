#include "eligibility.hpp"

#include "mpi/half_type.hpp"
#include "half_ops.hpp"

namespace crimp {

std::optional<Dtype> summed_type(MPI_Datatype type, MPI_Op op, Pass* why) {
  if (op == MPI_SUM) {
    if (type == MPI_FLOAT) return Dtype::f32;
    if (type == MPI_DOUBLE) return Dtype::f64;
    // Fortran's handles are different ones of the same numbers.
    if (type == MPI_REAL || type == MPI_REAL4) return Dtype::f32;
    if (type == MPI_DOUBLE_PRECISION || type == MPI_REAL8) return Dtype::f64;
    *why = Pass::type;
    return {};
  }
  if (half_types_exist()) {
    if (op == half_sum(Dtype::f16) && type == half_type(Dtype::f16)) return Dtype::f16;
    if (op == half_sum(Dtype::bf16) && type == half_type(Dtype::bf16)) return Dtype::bf16;
  }
  if (may_sum_halves(op)) {
    if (holds_halves(type)) return Dtype::f16;
    *why = Pass::type;
    return {};
  }
  *why = Pass::operation;
  return {};
}

bool odd_arguments(const void* sendbuf, const void* recvbuf, std::uint64_t count) {
  return count == 0 || sendbuf == recvbuf || !sendbuf || !recvbuf || recvbuf == MPI_IN_PLACE;
}

}  // namespace crimp
