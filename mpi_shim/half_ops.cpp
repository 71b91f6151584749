#include "half_ops.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "core/float_environment.hpp"
#include "horovod/observer.hpp"

namespace crimp {
namespace {

// Functions that add float16, as compilers of the Itanium C++ ABI write their names; MPI's datatype handle follows and
// is another in every library.
constexpr std::string_view kSums[] = {"_ZN7horovod6common11float16_sumE"};
constexpr std::string_view kHorovod = "_ZN7horovod6common";
// Libraries whose functions have no symbols: an operation of theirs may add halves.
constexpr std::string_view kLibraries[] = {"libmlx."};

enum class Answer { untried, f16, bf16, other };

struct Operation {
  bool named;  // one of kSums
  Answer answer;
  std::uint64_t note;  // this one's
};

struct Known {
  std::mutex mutex;
  std::map<MPI_Op, Operation> ops;
  std::uint64_t notes = 0;  // so far
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
constexpr std::uint16_t kNaN = 0xffff;  // any NaN will do
constexpr Sum kSumsOfF16[] = {{0x3c00, 0x4000, 0x4200}, {0xc000, 0x4500, 0x4200}, {0x3800, 0x3400, 0x3a00},
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
// The same of bfloat16, whose ulp is 2^-7 at one.
constexpr Sum kSumsOfBf16[] = {{0x3f80, 0x4000, 0x4040}, {0xc000, 0x40a0, 0x4040}, {0x3f00, 0x3e80, 0x3f40},
                               {0x4300, 0x3f80, 0x4301},  // 1+2, -2+5, .5+.25, 128+1
                               {0x4040, 0xc040, 0x0000}, {0x42c8, 0x41e0, 0x4300}, {0x0000, 0x40e0, 0x40e0},
                               {0xbe80, 0xbf00, 0xbf40},  // 3-3, 100+28, 0+7, -.25-.5
                               {0x7f7f, 0x7f7f, 0x7f80}, {0xff7f, 0xff7f, 0xff80}, {0x7f7f, 0x7b00, 0x7f80},
                               {0x7f7f, 0x7aff, 0x7f7f},  // the largest and itself, 2^119 (a tie), less
                               {0x3f80, 0x3b80, 0x3f80}, {0x3f81, 0x3b80, 0x3f82}, {0x3f80, 0x3b81, 0x3f81},
                               {0x0001, 0x0001, 0x0002},  // ties and above one; subnormals
                               {0x007f, 0x0001, 0x0080}, {0x0080, 0x8001, 0x007f}, {0x0001, 0x8001, 0x0000},
                               {0x8000, 0x8000, 0x8000},  // ... and zeros
                               {0x8000, 0x0000, 0x0000}, {0x7f80, 0x3f80, 0x7f80}, {0xff80, 0x7f7f, 0xff80},
                               {0x7fc0, 0x3f80, kNaN},  // infinities and NaN
                               {0x7f80, 0xff80, kNaN},   {0x4380, 0x3f80, 0x4380}, {0x3f81, 0x3b80, 0x3f82},
                               {0x007f, 0x0001, 0x0080}, {0x0001, 0x8003, 0x8002}, {0x8000, 0x8000, 0x8000},
                               {0xff7f, 0xfb00, 0xff80}};
static_assert(std::size(kSumsOfF16) % 8 == 7 && std::size(kSumsOfBf16) == std::size(kSumsOfF16));

bool adds(std::span<const Sum> tried, std::uint16_t infinity, MPI_Op op, MPI_Datatype type) {
  std::array<std::uint16_t, std::size(kSumsOfF16)> in, inout;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = tried[i].a, inout[i] = tried[i].b;
  const FloatEnvironment environment;  // the thread's own may flush subnormals to zero, on one rank only
  if (PMPI_Reduce_local(in.data(), inout.data(), static_cast<int>(in.size()), type, op) != MPI_SUCCESS) return false;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (tried[i].sum == kNaN ? (inout[i] & 0x7fff) <= infinity : inout[i] != tried[i].sum) return false;
  return true;
}

bool holds_halves(MPI_Datatype type) {
  int integers, addresses, types, combiner;
  if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
      combiner != MPI_COMBINER_CONTIGUOUS)
    return false;
  int count;
  MPI_Aint none;
  MPI_Datatype base;
  return PMPI_Type_get_contents(type, 1, 0, 1, &count, &none, &base) == MPI_SUCCESS && count == 2 &&
         (base == MPI_BYTE || base == MPI_UINT8_T);
}

// named: it can only be float16.
Answer what_it_adds(MPI_Op op, MPI_Datatype type, bool named) {
  if (adds(kSumsOfF16, 0x7c00, op, type)) return Answer::f16;
  return !named && adds(kSumsOfBf16, 0x7f80, op, type) ? Answer::bf16 : Answer::other;
}

// Whether the function lies in one of kLibraries.
bool in_known_library(const Dl_info& function) {
  std::string_view file = function.dli_fname ? function.dli_fname : "";
  file.remove_prefix(file.rfind('/') + 1);
  for (const auto library : kLibraries)
    if (file.starts_with(library)) return true;
  return false;
}

bool has_name_of_a_sum(std::string_view symbol) {
  for (const auto sum : kSums)
    if (symbol.starts_with(sum)) return true;
  return false;
}

std::optional<Operation> known(MPI_Op op) {
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  const auto it = known.ops.find(op);
  return it == known.ops.end() ? std::nullopt : std::optional(it->second);
}

Answer tried(MPI_Op op, MPI_Datatype type) {
  const auto operation = known(op);
  if (!operation) return Answer::other;
  if (operation->answer != Answer::untried) return operation->answer;
  const Answer answer = what_it_adds(op, type, operation->named);  // without the lock: it is the program's code
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  if (const auto it = known.ops.find(op); it != known.ops.end()) it->second.answer = answer;
  return answer;
}

}  // namespace

void note_op(MPI_User_function* function, MPI_Op op) {
  forget_op(op, note_of(op));
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(function), &info)) return;
  // The nearest symbol before a function without one is another function's.
  const bool has_symbol = info.dli_sname && info.dli_saddr == reinterpret_cast<void*>(function);
  const std::string_view name = has_symbol ? info.dli_sname : "";
  if (name.starts_with(kHorovod)) horovod::Observer::get().detect();
  const bool named = has_name_of_a_sum(name);
  if (!named && !in_known_library(info)) return;
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  known.ops[op] = {named, Answer::untried, ++known.notes};
  any.store(true, std::memory_order_release);
}

std::uint64_t note_of(MPI_Op op) {
  if (!any.load(std::memory_order_acquire)) return 0;
  const auto operation = known(op);
  return operation ? operation->note : 0;
}

void forget_op(MPI_Op op, std::uint64_t note) {
  if (note == 0) return;
  Known& known = Known::get();
  std::lock_guard lock(known.mutex);
  const auto it = known.ops.find(op);
  if (it != known.ops.end() && it->second.note == note) known.ops.erase(it);
}

bool may_sum_halves(MPI_Op op) { return any.load(std::memory_order_acquire) && known(op); }

std::optional<Dtype> summed_halves(MPI_Op op, MPI_Datatype type) {
  if (!holds_halves(type)) return {};
  const auto operation = known(op);
  if (operation && operation->named) return Dtype::f16;
  switch (tried(op, type)) {
    case Answer::f16: return Dtype::f16;
    case Answer::bf16: return Dtype::bf16;
    default: return {};
  }
}

bool sums_halves(MPI_Op op, MPI_Datatype type) { return tried(op, type) != Answer::other; }

}  // namespace crimp
