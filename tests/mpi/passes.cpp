// What is not a gradient: every predefined datatype with every predefined operation, user types and operations. Each
// call ends with the MPI library's own code and bits, and none is compressed.
#include "check.hpp"

namespace {

constexpr int kCount = 20000;

// MPICH's codes say which time an error happened.
int meaning(int code) {
#ifndef OMPI_MAJOR_VERSION
  MPI_Error_class(code, &code);
#endif
  return code;
}

void compare(const char* what, MPI_Datatype type, MPI_Op op, const std::vector<unsigned char>& in,
             bool must_work = true) {
  std::vector<unsigned char> out(in.size(), 0), plain(in.size(), 0);
  const int rc = MPI_Allreduce(in.data(), out.data(), kCount, type, op, MPI_COMM_WORLD);
  const int native = check::native_allreduce(in.data(), plain.data(), kCount, type, op, MPI_COMM_WORLD);
  CHECK(meaning(rc) == meaning(native), "%s: code %d, MPI's is %d", what, rc, native);
  CHECK(out == plain, "%s: not MPI's bits", what);
  CHECK(rc == MPI_SUCCESS || !must_work, "%s", what);
  if (op == MPI_SUM) ++check::expected["passed_through.type"];
  else ++check::expected["passed_through.operation"];
}

// MPICH ends the job where these are asked for.
bool mpi_lives([[maybe_unused]] MPI_Datatype type, [[maybe_unused]] MPI_Op op) {
#ifdef OMPI_MAJOR_VERSION
  return true;
#else
  return (op != MPI_LAND && op != MPI_LOR) || (type != MPI_FLOAT && type != MPI_DOUBLE && type != MPI_LONG_DOUBLE);
#endif
}

void largest_of_pair(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < 2 * *count; ++i)
    static_cast<float*>(inout)[i] = std::max(static_cast<float*>(inout)[i], static_cast<float*>(in)[i]);
}
void half_of_sum(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i)
    static_cast<float*>(inout)[i] = (static_cast<float*>(inout)[i] + static_cast<float*>(in)[i]) / 2;
}

}  // namespace

int main() {
  check::begin();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const struct {
    const char* name;
    MPI_Datatype type;
    bool summed;  // a float type that Crimp takes
  } types[] = {
#define TYPE(t, ...) {#t, t, false __VA_OPT__(||) __VA_ARGS__}
      TYPE(MPI_FLOAT, true),
      TYPE(MPI_DOUBLE, true),
      TYPE(MPI_LONG_DOUBLE),
      TYPE(MPI_CHAR),
      TYPE(MPI_SIGNED_CHAR),
      TYPE(MPI_UNSIGNED_CHAR),
      TYPE(MPI_SHORT),
      TYPE(MPI_UNSIGNED_SHORT),
      TYPE(MPI_INT),
      TYPE(MPI_UNSIGNED),
      TYPE(MPI_LONG),
      TYPE(MPI_UNSIGNED_LONG),
      TYPE(MPI_LONG_LONG_INT),
      TYPE(MPI_UNSIGNED_LONG_LONG),
      TYPE(MPI_INT8_T),
      TYPE(MPI_INT16_T),
      TYPE(MPI_INT32_T),
      TYPE(MPI_INT64_T),
      TYPE(MPI_UINT8_T),
      TYPE(MPI_UINT16_T),
      TYPE(MPI_UINT32_T),
      TYPE(MPI_UINT64_T),
      TYPE(MPI_C_BOOL),
      TYPE(MPI_CXX_BOOL),
      TYPE(MPI_C_FLOAT_COMPLEX),
      TYPE(MPI_C_DOUBLE_COMPLEX),
      TYPE(MPI_BYTE),
      TYPE(MPI_AINT),
      TYPE(MPI_OFFSET),
      TYPE(MPI_COUNT),
      TYPE(MPI_FLOAT_INT),
      TYPE(MPI_DOUBLE_INT),
      TYPE(MPI_2INT),
      TYPE(MPI_LONG_INT)};
  const struct {
    const char* name;
    MPI_Op op;
  } ops[] = {
#define OP(o) {#o, o}
      OP(MPI_SUM),  OP(MPI_PROD), OP(MPI_MAX), OP(MPI_MIN),  OP(MPI_LAND),   OP(MPI_LOR),
      OP(MPI_LXOR), OP(MPI_BAND), OP(MPI_BOR), OP(MPI_BXOR), OP(MPI_MAXLOC), OP(MPI_MINLOC)};
  for (const auto& t : types)
    for (const auto& o : ops) {
      if (t.summed && o.op == MPI_SUM) continue;
      if (!mpi_lives(t.type, o.op)) continue;
      int bytes = 0;
      MPI_Aint low = 0, extent = 0;
      MPI_Type_size(t.type, &bytes);
      MPI_Type_get_extent(t.type, &low, &extent);
      std::vector<unsigned char> in(static_cast<std::size_t>(kCount) * static_cast<std::size_t>(extent));
      const auto mine = static_cast<unsigned>(check::rank);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(check::random_bits(i, mine) % 3);
      compare((std::string(t.name) + " " + o.name).c_str(), t.type, o.op, in, false);
    }

  // The user's own operations on a float type and on a derived type, and MPI_SUM on a duplicate of MPI_FLOAT, which MPI
  // refuses.
  std::vector<unsigned char> in(kCount * 2 * sizeof(float));
  for (std::size_t i = 0; i < 2 * kCount; ++i)
    reinterpret_cast<float*>(in.data())[i] = static_cast<float>(check::value(i, check::rank));
  MPI_Op pair_op, mean_op;
  MPI_Op_create(largest_of_pair, 1, &pair_op);
  MPI_Op_create(half_of_sum, 1, &mean_op);
  MPI_Datatype pair, duplicate;
  MPI_Type_contiguous(2, MPI_FLOAT, &pair);
  MPI_Type_commit(&pair);
  MPI_Type_dup(MPI_FLOAT, &duplicate);
  compare("user operation on a pair", pair, pair_op, in);
  compare("user operation on MPI_FLOAT", MPI_FLOAT, mean_op, in);
  compare("MPI_SUM on a duplicate of MPI_FLOAT", duplicate, MPI_SUM, in, false);
  MPI_Type_free(&pair);
  MPI_Type_free(&duplicate);
  MPI_Op_free(&pair_op);
  MPI_Op_free(&mean_op);
  check::expected["calls"] = 0;
  return check::finish();
}
