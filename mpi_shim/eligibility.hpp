// What may be compressed, from values that MPI requires to be equal on all ranks: datatype, operation, count.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "core/pass_reason.hpp"
#include "core/types.hpp"
#include "horovod/observer.hpp"
#include "mpi/runtime.hpp"
#include "staged.hpp"

namespace crimp {

// A sum as a program asks for it, by MPI_Allreduce or by crimp_allreduce.
struct SumCall {
  const void* sendbuf;  // MPI_IN_PLACE is possible
  void* recvbuf;
  std::uint64_t count;  // a negative one of MPI's counts as more than there is memory
  MPI_Datatype datatype;
  MPI_Op op;
  MPI_Comm comm;
  bool shared = false;  // ranks receive shares
};

enum class Way {
  pass,   // through MPI
  small,  // through MPI, unless its tensors are known and have momentum
  compress
};

struct Eligibility {
  Way way;
  PassReason why;  // where the way is MPI's
  Dtype dtype;     // where it is not `pass`
};

// The element type of a sum of floating-point numbers, or nothing and the reason. A user operation is known by its
// name or its library; sums_halves() tries it.
std::optional<Dtype> type_of_user_sum(MPI_Datatype, MPI_Op, PassReason* why);
// Of MPI_REAL and MPI_DOUBLE_PRECISION, as long as this MPI's Fortran compiler makes them (-fdefault-real-8).
std::optional<Dtype> type_of_real(MPI_Datatype, PassReason* why);
__attribute__((always_inline)) inline std::optional<Dtype> summed_type(MPI_Datatype type, MPI_Op op, PassReason* why) {
  if (op != MPI_SUM) return type_of_user_sum(type, op, why);
  if (type == MPI_FLOAT) return Dtype::f32;
  if (type == MPI_DOUBLE) return Dtype::f64;
  // Fortran's handles are different ones of the same numbers.
  if (type == MPI_REAL4) return Dtype::f32;
  if (type == MPI_REAL8) return Dtype::f64;
  if (type == MPI_REAL || type == MPI_DOUBLE_PRECISION) return type_of_real(type, why);
  *why = PassReason::type;
  return {};
}

// Left to MPI, whose errors are better than ours: null communicators and buffers, in-place receive, no elements; of
// sums that all ranks receive, where programs alias on all ranks or on none, aliased buffers. A share may lie where one
// rank's buffer begins.
inline bool odd_arguments(const SumCall& call) {
  return call.comm == MPI_COMM_NULL || call.count == 0 || call.count > std::numeric_limits<std::int64_t>::max() ||
         (call.sendbuf == call.recvbuf && !call.shared) || !call.sendbuf || !call.recvbuf ||
         call.recvbuf == MPI_IN_PLACE;
}

// Which way a call takes, as far as its arguments and the settings say. with_codec: it has a codec whatever CRIMP_CODEC
// says. Inline, because most calls are through with it.
inline Eligibility classify(const SumCall& call, bool with_codec) {
  const Runtime& runtime = Runtime::get();
  if (!with_codec && !runtime.compressing()) return {Way::pass, runtime.why_off(), {}};
  PassReason why = PassReason::type;
  const std::optional<Dtype> dtype = summed_type(call.datatype, call.op, &why);
  if (!dtype) return {Way::pass, why, {}};
  // What was chosen for Horovod is for nothing else: other ranks may run without it, and sums of other threads are not
  // its.
  if (!with_codec && runtime.only_for_horovod() && !horovod::Observer::in_its_thread())
    return {Way::pass, PassReason::no_codec, *dtype};
  auto& horovod = horovod::Observer::get();
  if (horovod.detected() && horovod.is_adasum(*dtype, call.comm)) return {Way::pass, PassReason::adasum, *dtype};
  if (call.count < runtime.settings().min_count) return {Way::small, PassReason::small, *dtype};
  if (odd_arguments(call)) return {Way::pass, PassReason::odd_arguments, *dtype};
  return {Way::compress, PassReason::off, *dtype};
}

// Nearly all sums that programs make step by step, where passes are not counted: of integers, or with Crimp off,
// from buffers that MPI can read. Inline and asked first, it is most of what those cost.
__attribute__((always_inline)) inline bool never_ours(const NextMpi& next, Buffers buffers, MPI_Datatype type,
                                                      MPI_Op op) {
  const Runtime& runtime = Runtime::get();
  PassReason unused;
  return runtime.running() && !runtime.late() && (!runtime.compressing() || !summed_type(type, op, &unused)) &&
         goes_straight(next, buffers);
}

}  // namespace crimp
