// Ways to reach MPI_Allreduce, and moments to load or finalize.
//   loading plugin LIB   LIB calls MPI_Allreduce and is opened after MPI_Init: locally, globally, and with
//   RTLD_DEEPBIND, which goes past
//                        every preload; so does a look-up in libmpi's own handle (ctypes). Both are known limits.
//   loading late LIB     LIB is libcrimp.so, opened after MPI_Init
//   loading late_differ LIB     the same with settings that differ between ranks: every call passes through, none hangs
//   loading atexit       MPI_Finalize is called from an exit handler, as by PyTorch
#include "check.hpp"

namespace {

constexpr int kCount = 20000;
using Allreduce = decltype(&MPI_Allreduce);

// Whether Crimp compressed the call: 1/3 is not a half-precision number.
bool compressed(Allreduce f) {
  std::vector<float> in(kCount, 1.0f / 3), out(kCount), plain(kCount);
  CHECK(f && f(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  check::native_allreduce(in.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(std::abs(out[0] - plain[0]) < 1e-3f);
  return out != plain;
}

template <class F>
F symbol(void* handle, const char* name) {
  return reinterpret_cast<F>(dlsym(handle, name));
}

bool by_plugin(const char* file, int mode) {
  void* const handle = dlopen(file, RTLD_NOW | mode);
  CHECK(handle, "%s", dlerror());
  if (!handle) return false;
  const bool was = compressed(symbol<Allreduce>(handle, "plugin_allreduce"));
  dlclose(handle);
  return was;
}

}  // namespace

int main(int, char** argv) {
  const std::string mode = argv[1];
  check::begin();
  if (mode == "plugin") {
    CHECK(by_plugin(argv[2], RTLD_LOCAL));
    CHECK(by_plugin(argv[2], RTLD_GLOBAL));
    CHECK(compressed(symbol<Allreduce>(RTLD_DEFAULT, "MPI_Allreduce")) &&
          compressed(symbol<Allreduce>(RTLD_DEFAULT, "PMPI_Allreduce")));
    CHECK(!compressed(reinterpret_cast<Allreduce>(check::in_libmpi("MPI_Allreduce"))));
    CHECK(!by_plugin(argv[2], RTLD_DEEPBIND));
    check::expected["calls"] = 4;
    return check::finish();
  }
  if (mode == "late_differ") {
    void* const crimp = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    CHECK(crimp, "%s", dlerror());
    for (int i = 0; crimp && i < 3; ++i) CHECK(!compressed(symbol<Allreduce>(crimp, "MPI_Allreduce")));
    const int status = check::verdict();
    if (crimp) symbol<decltype(&MPI_Finalize)>(crimp, "MPI_Finalize")();
    return status;
  }
  if (mode == "late") {
    void* const crimp = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    CHECK(crimp, "%s", dlerror());
    for (int i = 0; crimp && i < 3; ++i)
      CHECK(compressed(symbol<Allreduce>(crimp, i % 2 ? "PMPI_Allreduce" : "MPI_Allreduce")));
    check::expected["calls"] = 3;
    const int status = check::verdict();
    if (crimp) symbol<decltype(&MPI_Finalize)>(crimp, "MPI_Finalize")();
    return status;
  }
  CHECK(compressed(MPI_Allreduce));
  check::expected["calls"] = 1;
  std::atexit([] { MPI_Finalize(); });
  return check::verdict();
}
