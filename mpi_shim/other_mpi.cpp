#include "other_mpi.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstring>
#include <memory>

#include "core/environment.hpp"

namespace crimp {
namespace {

enum class Interface { open_mpi, mpich, mpi_5 };
#if defined(OMPI_MAJOR_VERSION)
constexpr Interface kOwn = Interface::open_mpi;
#elif defined(MPI_ABI)
constexpr Interface kOwn = Interface::mpi_5;
#else
constexpr Interface kOwn = Interface::mpich;
#endif

// The module that defines a function or a variable for who looks there (RTLD_NEXT: for whoever comes behind us), with a
// name that lives as long as the module.
Dl_info definer(void* scope, const char* name) {
  Dl_info info{};
  void* const symbol = ::dlsym(scope, name);
  if (!symbol || !::dladdr(symbol, &info)) info = {};
  return info;
}

// A function that no tool wraps.
constexpr const char* kOfMpi = "PMPI_Get_version";
// Variables that one interface alone has.
constexpr const char *kOfOpenMpi = "ompi_mpi_comm_world", *kOfMpich = "MPI_UNWEIGHTED";

// By such a variable, and by the name of the library that has MPI 5's interface.
Interface interface_of(void* scope, const Dl_info& mpi) {
  if (definer(scope, kOfOpenMpi).dli_fbase == mpi.dli_fbase) return Interface::open_mpi;
  return mpi.dli_fname && std::strstr(mpi.dli_fname, "libmpi_abi.") ? Interface::mpi_5 : Interface::mpich;
}

OtherMpi described(Interface interface, const Dl_info& mpi, const char* module) {
  return {mpi.dli_fname ? mpi.dli_fname : "another", interface == Interface::open_mpi ? "mpirun" : "mpiexec.mpich",
          module};
}

// The module that this call came from, which is the first on the stack that is not ours; null: not known.
const link_map* calling_module() {
  struct Walk {
    const void* own;
    link_map* found = nullptr;
  };
  Dl_info own;
  if (!::dladdr(reinterpret_cast<const void*>(&calling_module), &own)) return nullptr;
  Walk walk{own.dli_fbase};
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* argument) {
        auto& w = *static_cast<Walk*>(argument);
        Dl_info at;
        link_map* map = nullptr;
        void* const code = reinterpret_cast<void*>(_Unwind_GetIP(frame));
        if (!::dladdr1(code, &at, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return _URC_NORMAL_STOP;
        if (at.dli_fbase == w.own) return _URC_NO_REASON;
        w.found = map;
        return _URC_NORMAL_STOP;
      },
      &walk);
  return walk.found;
}

}  // namespace

constinit bool other_mpi = false;
constinit thread_local const void* entered = nullptr;
constinit NextMpi behind_mpi{}, behind_pmpi{};
const char* const kOwnMpi = kOwn == Interface::open_mpi ? "Open MPI"
                            : kOwn == Interface::mpi_5  ? "MPI 5's binary interface"
                                                        : "MPICH";

OtherMpi find_other_mpi() {
  const Dl_info mpi = definer(RTLD_NEXT, kOfMpi);
  const Interface interface = interface_of(RTLD_NEXT, mpi);
  if (!mpi.dli_fbase || interface == kOwn) return {};
  behind_mpi = next_mpi();
  behind_pmpi = next_pmpi();
  other_mpi = true;
  return described(interface, mpi, "");
}

OtherMpi find_callers_mpi() {
  const link_map* const caller = calling_module();
  // What the program finds is known, and it may have a copy of kOfOpenMpi of its own.
  if (!caller || !*caller->l_name) return {};
  struct Close {
    void operator()(void* scope) const { ::dlclose(scope); }
  };
  // The module and what it needs, without what is in front of that for all.
  const std::unique_ptr<void, Close> scope(::dlopen(caller->l_name, RTLD_LAZY | RTLD_NOLOAD));
  if (!scope) return {};
  const Dl_info mpi = definer(scope.get(), kOfMpi);
  const Interface interface = interface_of(scope.get(), mpi);
  if (!mpi.dli_fbase || interface == kOwn) return {};
  const bool both = kOwn == Interface::open_mpi ? definer(scope.get(), kOfOpenMpi).dli_fbase
                    : kOwn == Interface::mpich  ? definer(scope.get(), kOfMpich).dli_fbase
                                                : nullptr;
  return both ? OtherMpi{} : described(interface, mpi, caller->l_name);
}

const char* launcher_of_another_mpi() {
  int size = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 1) return "";
  const char* const count = kOwn == Interface::open_mpi ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE";
  return environment_number(count, 1) > 1 ? count : "";
}

}  // namespace crimp
