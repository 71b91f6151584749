// Operations whose functions are named as sums of float16, and what they really do.
//   halves SUM      SUM: plain (Horovod's symbol, adds as IEEE 754 has it), saturating (the same symbol; 65504 instead
//   of infinity), flushing
//                   (subnormals to zero), truncating (ties and all down), or resembling (adds right, by another name)
//   halves SUM off  with Crimp off or without a codec: the operation is never tried
//   halves SUM kept MPI_Op_free has failed once (libmpi_failing.so behind Crimp): the operation is what it was
//   halves SUM reused    another operation has been freed, and before MPI_Op_free returned, as by another thread, this
//                   one made, which may have its handle; of a type of MPI_UINT8_T
//   halves SUM freed     CRIMP_PROGRESS=thread: operation and type are no more while a sum is under way
// What Crimp does not know as a sum passes, and is MPI's bits; it is not called before a call could be compressed, and
// then once.
#include <dlfcn.h>

#include "check.hpp"

using check::rank;

namespace {

constexpr int kCount = 20000;
std::string kind;
int executed = 0;

double value_of(std::uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                     : std::ldexp(mantissa, -24);
  return h & 0x8000 ? -size : size;
}

// To the nearest, ties to even; by what the test asks for otherwise.
std::uint16_t half_of(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::abs(x);
  if (std::isnan(x)) return 0x7e00;
  if (size >= 65520 && (kind != "saturating" || std::isinf(x))) return sign | 0x7c00;
  if (size >= 65520) return sign | 0x7bff;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int unit = size == 0 ? -24 : std::max(exponent - 11, -24);  // of the last place
  const double units = std::ldexp(size, -unit);
  const auto whole = static_cast<int>(kind == "truncating" ? std::floor(units) : std::nearbyint(units));
  if (kind == "flushing" && size < 0x1p-14) return sign;
  const int bits = unit == -24 ? whole : whole + ((unit + 24) << 10);
  return static_cast<std::uint16_t>(sign | bits);
}

void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  ++executed;
  const auto* a = static_cast<const std::uint16_t*>(in);
  auto* b = static_cast<std::uint16_t*>(inout);
  int bytes = 0;
  MPI_Type_size(*type, &bytes);
  for (int i = 0; i < *count * bytes / 2; ++i) b[i] = half_of(value_of(a[i]) + value_of(b[i]));
}

void keep_first(void*, void*, int*, MPI_Datatype*) {}

}  // namespace

namespace horovod::common {
__attribute__((visibility("default"), noinline)) void float16_sum(void* in, void* inout, int* count,
                                                                  MPI_Datatype* type) {
  add(in, inout, count, type);
}
}  // namespace horovod::common
extern "C" __attribute__((visibility("default"), noinline)) void my_half_float16_sum(void* in, void* inout, int* count,
                                                                                     MPI_Datatype* type) {
  add(in, inout, count, type);
}

namespace {

MPI_Op sum = MPI_OP_NULL;
void make_sum() { MPI_Op_create(kind == "resembling" ? my_half_float16_sum : horovod::common::float16_sum, 1, &sum); }

// One that a free has made room for, in its place.
void make_sum_in_free() {
  MPI_Op before;
  MPI_Op_create(horovod::common::float16_sum, 1, &before);
  *static_cast<void (**)()>(dlsym(RTLD_DEFAULT, "when_op_freed")) = make_sum;
  MPI_Op_free(&before);
  CHECK(sum != MPI_OP_NULL, "no operation was made");
}

std::vector<std::uint16_t> by_request(const std::vector<std::uint16_t>& in, MPI_Datatype type) {
  std::vector<std::uint16_t> out(in.size());
  MPI_Request request;
  CHECK(MPI_Iallreduce(in.data(), out.data(), kCount, type, sum, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  return out;
}

// Two halves an element: Crimp has no such type.
void pairs(bool off) {
  MPI_Datatype pair;
  MPI_Type_contiguous(4, MPI_BYTE, &pair);
  MPI_Type_commit(&pair);
  std::vector<std::uint16_t> in(2 * kCount), out(in.size()), plain(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = half_of(check::value(i, rank) / 3);
  check::native_allreduce(in.data(), plain.data(), kCount, pair, sum, MPI_COMM_WORLD);
  CHECK(MPI_Allreduce(in.data(), out.data(), kCount, pair, sum, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(out == plain, "not MPI's bits");
  if (!off && kind != "resembling") check::expected["passed_through.type"] = 1;
  MPI_Type_free(&pair);
}

// The handle of an operation that is freed is another one's, of whose making Crimp hears nothing.
void another_of_this_handle(const std::vector<std::uint16_t>& in, MPI_Datatype type) {
  static const auto create = reinterpret_cast<decltype(&PMPI_Op_create)>(check::in_libmpi("PMPI_Op_create"));
  MPI_Op other;
  create(keep_first, 1, &other);
  std::vector<std::uint16_t> out(in.size()), plain(in.size());
  check::native_allreduce(in.data(), plain.data(), kCount, type, other, MPI_COMM_WORLD);
  CHECK(MPI_Allreduce(in.data(), out.data(), kCount, type, other, MPI_COMM_WORLD) == MPI_SUCCESS);
  CHECK(out == plain, "not MPI's bits");
  MPI_Op_free(&other);
}

// The other ranks come to their sum when rank 0's type and operation are others. MPI has it, because of an infinity.
void freed_under_way(std::vector<std::uint16_t> in, MPI_Datatype type) {
  std::vector<std::uint16_t> out(in.size()), plain(in.size());
  in[5] = 0x7c00;
  check::native_allreduce(in.data(), plain.data(), kCount, type, sum, MPI_COMM_WORLD);
  if (rank > 0) MPI_Recv(nullptr, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Request request;
  CHECK(MPI_Iallreduce(in.data(), out.data(), kCount, type, sum, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
  MPI_Op_free(&sum);
  MPI_Type_free(&type);
  MPI_Op other;
  MPI_Op_create(keep_first, 1, &other);
  for (int r = 1; rank == 0 && r < check::size; ++r) MPI_Send(nullptr, 0, MPI_BYTE, r, 1, MPI_COMM_WORLD);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(out == plain, "not MPI's bits");
  MPI_Op_free(&other);
  check::expected["passed_through.range"] = 1;
}

}  // namespace

int main(int argc, char** argv) {
  kind = argv[1];
  const std::string how = argc > 2 ? argv[2] : "";
  const bool off = how == "off";
  check::begin();
  MPI_Datatype half;
  MPI_Type_contiguous(2, how == "reused" ? MPI_UINT8_T : MPI_BYTE, &half);
  MPI_Type_commit(&half);
  how == "reused" ? make_sum_in_free() : make_sum();
  CHECK(executed == 0, "%d times at MPI_Op_create", executed);
  if (how == "kept") {
    *static_cast<int*>(dlsym(RTLD_DEFAULT, "fail_op_free")) = 1;
    MPI_Op same = sum;
    CHECK(MPI_Op_free(&same) != MPI_SUCCESS && same == sum, "the operation was freed");
  }
  std::vector<std::uint16_t> in(kCount), out(kCount), plain(kCount);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = half_of(check::value(i, rank) / 3);

  // Small calls, and those of another type, are not compressed whatever the operation does.
  MPI_Allreduce(in.data(), out.data(), 100, half, sum, MPI_COMM_WORLD);
  const int by_small = executed;
  executed = 0;
  check::native_allreduce(in.data(), plain.data(), 100, half, sum, MPI_COMM_WORLD);
  CHECK(executed == by_small, "a small call: %d times, MPI: %d", by_small, executed);

  const bool compresses = kind == "plain" && !off, tried = !off && kind != "resembling";
  for (int call = 0; call < 3; ++call) {
    executed = 0;
    check::native_allreduce(in.data(), plain.data(), kCount, half, sum, MPI_COMM_WORLD);
    const int by_mpi = executed;
    executed = 0;
    CHECK(MPI_Allreduce(in.data(), out.data(), kCount, half, sum, MPI_COMM_WORLD) == MPI_SUCCESS);
    const int wanted = (compresses ? 0 : by_mpi) + (tried && call == 0);
    CHECK(executed == wanted, "call %d: %d times, not %d", call, executed, wanted);
    if (!compresses) CHECK(out == plain, "not MPI's bits");
    CHECK(check::identical(out.data(), out.size() * sizeof out[0], MPI_COMM_WORLD));
    for (std::size_t i = 0; i < out.size(); ++i)
      CHECK(std::abs(value_of(out[i]) - value_of(plain[i])) <= 2e-3, "element %zu", i);
  }
  check::expected["calls"] = compresses ? 3 : 0;
  if (how == "freed") {
    freed_under_way(in, half);
    return check::finish();
  }
  const auto out_of_request = by_request(in, half);
  CHECK(compresses || out_of_request == plain, "not MPI's bits");
  check::expected["calls"] += compresses;
  pairs(off);
  MPI_Op_free(&sum);
  another_of_this_handle(in, half);
  if (!off) check::expected["passed_through.operation"] = 1 + (compresses ? 0 : kind == "resembling" ? 6 : 4);
  MPI_Type_free(&half);
  return check::finish();
}
