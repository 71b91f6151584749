#include "other_mpi.hpp"

#include <dlfcn.h>

#include "core/environment.hpp"

namespace crimp {
namespace {

#ifdef OMPI_MAJOR_VERSION
constexpr bool kOwnIsOpen = true;
#else
constexpr bool kOwnIsOpen = false;
#endif

// The module that defines a function or a variable for whoever comes behind us; a name that is never freed.
Dl_info behind(const char* name) {
  Dl_info info{};
  void* const symbol = ::dlsym(RTLD_NEXT, name);
  if (!symbol || !::dladdr(symbol, &info)) info = {};
  return info;
}

}  // namespace

constinit bool other_mpi = false;
constinit thread_local const void* entered = nullptr;
constinit NextMpi behind_mpi{}, behind_pmpi{};
const char* const kOwnMpi = kOwnIsOpen ? "Open MPI" : "MPICH";

const char* find_other_mpi() {
  // A function that no tool wraps, and a variable of Open MPI's alone.
  const Dl_info mpi = behind("PMPI_Get_version"), open = behind("ompi_mpi_comm_world");
  if (!mpi.dli_fbase || (open.dli_fbase == mpi.dli_fbase) == kOwnIsOpen) return "";
  behind_mpi = next_mpi();
  behind_pmpi = next_pmpi();
  other_mpi = true;
  return mpi.dli_fname ? mpi.dli_fname : "another";
}

const char* launcher_of_another_mpi() {
  int size = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 1) return "";
  const char* const count = kOwnIsOpen ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE";
  return environment_number(count, 1) > 1 ? count : "";
}

}  // namespace crimp
