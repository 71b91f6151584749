#include "half_ops.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "comm/half_type.hpp"
#include "core/half.hpp"
#include "horovod/observer.hpp"

namespace crimp {
namespace {

std::mutex mutex;
auto& known = *new std::set<MPI_Op>;  // leaked: MPI may be finalized from an exit handler
std::atomic<bool> any{false};

bool adds_halves(MPI_Op op) {
  constexpr float a[] = {1, -2, 0.5f, 1024, -0.25f, 3, 0, 100}, b[] = {2, 5, 0.25f, 1, -0.5f, -3, 7, 28};
  std::uint16_t in[8], inout[8];
  for (int i = 0; i < 8; ++i) {
    in[i] = half_from_float(a[i]);
    inout[i] = half_from_float(b[i]);
  }
  if (PMPI_Reduce_local(in, inout, 8, half_type(Dtype::f16), op) != MPI_SUCCESS) return false;
  for (int i = 0; i < 8; ++i)
    if (inout[i] != half_from_float(a[i] + b[i])) return false;
  return true;
}

}  // namespace

void note_op(MPI_User_function* function, MPI_Op op) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(function), &info) || !info.dli_sname) return;
  const std::string name = info.dli_sname;
  if (name.find("horovod") != name.npos) horovod::Observer::get().detect();
  const bool half = name.find("float16") != name.npos || name.find("half") != name.npos;
  if (!half || name.find("sum") == name.npos || !adds_halves(op)) return;
  std::lock_guard lock(mutex);
  known.insert(op);
  any.store(true, std::memory_order_release);
}

void forget_op(MPI_Op op) {
  if (!any.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex);
  known.erase(op);
}

bool sums_halves(MPI_Op op) {
  if (!any.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex);
  return known.count(op) != 0;
}

bool holds_halves(MPI_Datatype type) {
  int integers, addresses, types, combiner;
  if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS || combiner != MPI_COMBINER_CONTIGUOUS) return false;
  int count;
  MPI_Aint none;
  MPI_Datatype base;
  return PMPI_Type_get_contents(type, 1, 0, 1, &count, &none, &base) == MPI_SUCCESS && count == 2 && base == MPI_BYTE;
}

}  // namespace crimp
