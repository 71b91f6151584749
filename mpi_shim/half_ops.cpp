#include "half_ops.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

#include "core/float_environment.hpp"
#include "horovod/observer.hpp"

namespace crimp {
namespace {

// Functions that add float16, as compilers of the Itanium C++ ABI write their names; MPI's datatype handle follows and
// is another in every library.
constexpr std::string_view kSums[] = {"_ZN7horovod6common11float16_sumE"};
constexpr std::string_view kHorovod = "_ZN7horovod6common";

enum class Answer { untried, sums, other };

struct Known {
  std::mutex mutex;
  std::map<MPI_Op, Answer> ops;
  static Known& get() {
    static auto& known = *new Known;  // leaked: MPI may be finalized from an exit handler
    return known;
  }
};
std::atomic<bool> any{false};

// a + b as IEEE 754 has it, rounded to nearest even: on bits. Horovod takes eight elements at a time and the last seven
// by other code, so the edges are in both.
struct Sum {
  std::uint16_t a, b, sum;
};
constexpr std::uint16_t kNaN = 0x7e00;  // any NaN will do
constexpr Sum kSumsTried[] = {{0x3c00, 0x4000, 0x4200}, {0xc000, 0x4500, 0x4200}, {0x3800, 0x3400, 0x3a00},
                              {0x6400, 0x3c00, 0x6401},  // 1+2, -2+5, .5+.25, 1024+1
                              {0x4200, 0xc200, 0x0000}, {0x5640, 0x4f00, 0x5800}, {0x0000, 0x4700, 0x4700},
                              {0xb400, 0xb800, 0xba00},  // 3-3, 100+28, 0+7, -.25-.5
                              {0x7bff, 0x7bff, 0x7c00}, {0xfbff, 0xfbff, 0xfc00}, {0x7bff, 0x4c00, 0x7c00},
                              {0x7bff, 0x4b80, 0x7bff},  // 65504 and itself, 16 (a tie), 15
                              {0x3c00, 0x1000, 0x3c00}, {0x3c01, 0x1000, 0x3c02}, {0x3c00, 0x1001, 0x3c01},
                              {0x0001, 0x0001, 0x0002},  // ties and above one; subnormals
                              {0x03ff, 0x0001, 0x0400}, {0x0400, 0x8001, 0x03ff}, {0x0001, 0x8001, 0x0000},
                              {0x8000, 0x8000, 0x8000},  // ... and zeros
                              {0x8000, 0x0000, 0x0000}, {0x7c00, 0x3c00, 0x7c00}, {0xfc00, 0x7bff, 0xfc00},
                              {0x7e00, 0x3c00, kNaN},  // infinities and NaN
                              {0x7c00, 0xfc00, kNaN},   {0x7bff, 0x7bff, 0x7c00}, {0x3c01, 0x1000, 0x3c02},
                              {0x03ff, 0x0001, 0x0400}, {0x0001, 0x8003, 0x8002}, {0x8000, 0x8000, 0x8000},
                              {0xfbff, 0xcc00, 0xfc00}};
static_assert(std::size(kSumsTried) % 8 == 7);

bool is_nan(std::uint16_t half) { return (half & 0x7fff) > 0x7c00; }

bool adds_halves(MPI_Op op, MPI_Datatype type) {
  std::array<std::uint16_t, std::size(kSumsTried)> in, inout;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = kSumsTried[i].a, inout[i] = kSumsTried[i].b;
  const FloatEnvironment environment;  // the thread's own may flush subnormals to zero, on one rank only
  if (PMPI_Reduce_local(in.data(), inout.data(), static_cast<int>(in.size()), type, op) != MPI_SUCCESS) return false;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (kSumsTried[i].sum == kNaN ? !is_nan(inout[i]) : inout[i] != kSumsTried[i].sum) return false;
  return true;
}

}  // namespace

void note_op(MPI_User_function* function, MPI_Op op) {
  Dl_info info;
  // The nearest symbol before a function without one is another function's.
  if (!dladdr(reinterpret_cast<void*>(function), &info) || !info.dli_sname ||
      info.dli_saddr != reinterpret_cast<void*>(function))
    return;
  const std::string_view name = info.dli_sname;
  if (name.starts_with(kHorovod)) horovod::Observer::get().detect();
  for (const auto sum : kSums) {
    if (!name.starts_with(sum)) continue;
    Known& known = Known::get();
    std::lock_guard lock(known.mutex);
    known.ops[op] = Answer::untried;
    any.store(true, std::memory_order_release);
  }
}

void forget_op(MPI_Op op) {
  if (!any.load(std::memory_order_acquire)) return;
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  known.ops.erase(op);
}

bool may_sum_halves(MPI_Op op) {
  if (!any.load(std::memory_order_acquire)) return false;
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  return known.ops.count(op) != 0;
}

bool sums_halves(MPI_Op op, MPI_Datatype type) {
  Known& known = Known::get();
  {
    std::lock_guard lock(known.mutex);
    const auto it = known.ops.find(op);
    if (it == known.ops.end()) return false;
    if (it->second != Answer::untried) return it->second == Answer::sums;
  }
  const bool sums = adds_halves(op, type);  // without the lock: it is the program's code
  std::lock_guard lock(known.mutex);
  known.ops[op] = sums ? Answer::sums : Answer::other;
  return sums;
}

bool holds_halves(MPI_Datatype type) {
  int integers, addresses, types, combiner;
  if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
      combiner != MPI_COMBINER_CONTIGUOUS)
    return false;
  int count;
  MPI_Aint none;
  MPI_Datatype base;
  return PMPI_Type_get_contents(type, 1, 0, 1, &count, &none, &base) == MPI_SUCCESS && count == 2 && base == MPI_BYTE;
}

}  // namespace crimp
