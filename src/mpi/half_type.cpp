#include "mpi/half_type.hpp"

#include <atomic>

#include "core/half.hpp"
#include "mpi/mpi_transport.hpp"

namespace crimp {
namespace {

template <auto decode, auto encode>
void add(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const std::uint16_t*>(in);
  auto* b = static_cast<std::uint16_t*>(inout);
  for (int i = 0; i < *count; ++i) b[i] = encode(decode(a[i]) + decode(b[i]));
}

struct Handles {
  MPI_Datatype type;
  MPI_Op sum;
  explicit Handles(MPI_User_function* function) {
    check_mpi(PMPI_Type_contiguous(2, MPI_BYTE, &type), "MPI_Type_contiguous");
    check_mpi(PMPI_Type_commit(&type), "MPI_Type_commit");
    check_mpi(PMPI_Op_create(function, 1, &sum), "MPI_Op_create");
  }
};

std::atomic<bool> exist{false};

const Handles& handles(Dtype dtype) {
  exist.store(true, std::memory_order_relaxed);
  if (dtype == Dtype::f16) {
    static const Handles f16(add<float_from_half, half_from_float>);
    return f16;
  }
  static const Handles bf16(add<float_from_bfloat, bfloat_from_float>);
  return bf16;
}

}  // namespace

bool half_types_exist() { return exist.load(std::memory_order_relaxed); }
MPI_Datatype half_type(Dtype dtype) { return handles(dtype).type; }
MPI_Op half_sum(Dtype dtype) { return handles(dtype).sum; }

}  // namespace crimp
