#include "reduction.hpp"

#include <climits>
#include <type_traits>

#include "mpi_process.hpp"

namespace crimp_torch {
namespace {

using Op = c10d::ReduceOp::RedOpType;

const char* name_of(Op op) {
  switch (op) {
    case Op::SUM: return "SUM";
    case Op::AVG: return "AVG";
    case Op::PRODUCT: return "PRODUCT";
    case Op::MIN: return "MIN";
    case Op::MAX: return "MAX";
    case Op::BAND: return "BAND";
    case Op::BOR: return "BOR";
    case Op::BXOR: return "BXOR";
    case Op::PREMUL_SUM: return "PREMUL_SUM";
    default: return "such operation";
  }
}

Reduction gradient_sum(at::ScalarType values, crimp_dtype dtype, bool averages) {
  Reduction r{values, MPI_DATATYPE_NULL, MPI_OP_NULL, true, dtype, averages};
  check_runs();
  check_mpi(crimp_datatype(dtype, &r.type, &r.op), "crimp_datatype");
  return r;
}

MPI_Op mpi_op(Op op) {
  switch (op) {
    case Op::SUM:
    case Op::AVG: return MPI_SUM;
    case Op::PRODUCT: return MPI_PROD;
    case Op::MIN: return MPI_MIN;
    case Op::MAX: return MPI_MAX;
    case Op::BAND: return MPI_BAND;
    case Op::BOR: return MPI_BOR;
    case Op::BXOR: return MPI_BXOR;
    default: return MPI_OP_NULL;
  }
}

// Of truth values, which are bytes of 0 and 1, and stay so.
MPI_Op truth_op(Op op) {
  switch (op) {
    case Op::SUM:
    case Op::MAX:
    case Op::BOR: return MPI_MAX;
    case Op::PRODUCT:
    case Op::MIN:
    case Op::BAND: return MPI_MIN;
    case Op::BXOR: return MPI_BXOR;
    default: return MPI_OP_NULL;
  }
}

bool is_half(at::ScalarType values) { return values == at::kHalf || values == at::kBFloat16; }

MPI_Datatype mpi_type(at::ScalarType values) {
  switch (values) {
    case at::kBool:
    case at::kByte: return MPI_UINT8_T;
    case at::kChar: return MPI_INT8_T;
    case at::kShort: return MPI_INT16_T;
    case at::kInt: return MPI_INT32_T;
    case at::kLong: return MPI_INT64_T;
    case at::kFloat: return MPI_FLOAT;
    case at::kDouble: return MPI_DOUBLE;
    case at::kComplexFloat: return MPI_C_FLOAT_COMPLEX;
    case at::kComplexDouble: return MPI_C_DOUBLE_COMPLEX;
    default: return MPI_DATATYPE_NULL;
  }
}

bool legal(at::ScalarType values, Op op) {
  const bool bits = op == Op::BAND || op == Op::BOR || op == Op::BXOR;
  if (at::isComplexType(values)) return op == Op::SUM || op == Op::AVG || op == Op::PRODUCT;
  return !at::isFloatingType(values) || !bits;
}

template <typename T>
void divide_each(void* data, std::int64_t count, double divisor) {
  T* values = static_cast<T*>(data);
  // Halves and bytes do not hold every count.
  using Held = std::conditional_t<std::is_integral_v<T>, std::int64_t, std::conditional_t<sizeof(T) == 2, float, T>>;
  const auto by = static_cast<Held>(divisor);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] / by);
}

}  // namespace

Reduction reduction(at::ScalarType values, const c10d::ReduceOp& asked) {
  const Op op = asked;
  const bool averages = op == Op::AVG;
  if (op == Op::SUM || averages) switch (values) {
      case at::kFloat: return gradient_sum(values, CRIMP_FLOAT32, averages);
      case at::kDouble: return gradient_sum(values, CRIMP_FLOAT64, averages);
      case at::kHalf: return gradient_sum(values, CRIMP_FLOAT16, averages);
      case at::kBFloat16: return gradient_sum(values, CRIMP_BFLOAT16, averages);
      default: break;
    }
  const at::ScalarType held = is_half(values) ? at::kFloat : values;
  const Reduction r{held,  mpi_type(held), held == at::kBool ? truth_op(op) : mpi_op(op),
                    false, CRIMP_FLOAT32,  averages};
  TORCH_CHECK(r.type != MPI_DATATYPE_NULL && r.op != MPI_OP_NULL && legal(values, op), "crimp: no ", name_of(op),
              " of tensors of type ", c10::toString(values));
  return r;
}

MPI_Datatype element_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    case 8: return MPI_UINT64_T;
    case 16: return MPI_C_DOUBLE_COMPLEX;
    default: TORCH_CHECK(false, "crimp: elements of ", tensor.element_size(), " bytes are not supported");
  }
}

int mpi_count(std::int64_t count) {
  TORCH_CHECK(count <= INT_MAX, "crimp: ", count, " elements in one call; this call takes at most ", INT_MAX);
  return static_cast<int>(count);
}

void divide(at::Tensor& tensor, double divisor) {
  if (divisor == 1) return;
  void* data = tensor.data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat: return divide_each<float>(data, tensor.numel(), divisor);
    case at::kDouble: return divide_each<double>(data, tensor.numel(), divisor);
    case at::kHalf: return divide_each<c10::Half>(data, tensor.numel(), divisor);
    case at::kBFloat16: return divide_each<c10::BFloat16>(data, tensor.numel(), divisor);
    case at::kComplexFloat: return divide_each<float>(data, 2 * tensor.numel(), divisor);
    case at::kComplexDouble: return divide_each<double>(data, 2 * tensor.numel(), divisor);
    case at::kByte: return divide_each<std::uint8_t>(data, tensor.numel(), divisor);
    case at::kChar: return divide_each<std::int8_t>(data, tensor.numel(), divisor);
    case at::kShort: return divide_each<std::int16_t>(data, tensor.numel(), divisor);
    case at::kInt: return divide_each<std::int32_t>(data, tensor.numel(), divisor);
    case at::kLong: return divide_each<std::int64_t>(data, tensor.numel(), divisor);
    default: TORCH_CHECK(false, "crimp: no average of tensors of type ", c10::toString(tensor.scalar_type()));
  }
}

}  // namespace crimp_torch
