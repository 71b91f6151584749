#include "other_mpi.hpp"

#include <dlfcn.h>

#include <cstring>

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

// The module that defines a function or a variable for whoever comes behind us; a name that is never freed.
Dl_info behind(const char* name) {
  Dl_info info{};
  void* const symbol = ::dlsym(RTLD_NEXT, name);
  if (!symbol || !::dladdr(symbol, &info)) info = {};
  return info;
}

// By a variable that Open MPI alone has, and the name of the library that has MPI 5's interface.
Interface interface_of(const Dl_info& mpi) {
  if (behind("ompi_mpi_comm_world").dli_fbase == mpi.dli_fbase) return Interface::open_mpi;
  return mpi.dli_fname && std::strstr(mpi.dli_fname, "libmpi_abi.") ? Interface::mpi_5 : Interface::mpich;
}

}  // namespace

constinit bool other_mpi = false;
constinit thread_local const void* entered = nullptr;
constinit NextMpi behind_mpi{}, behind_pmpi{};
const char* const kOwnMpi = kOwn == Interface::open_mpi ? "Open MPI"
                            : kOwn == Interface::mpi_5  ? "MPI 5's binary interface"
                                                        : "MPICH";

const char* find_other_mpi() {
  const Dl_info mpi = behind("PMPI_Get_version");  // a function that no tool wraps
  if (!mpi.dli_fbase || interface_of(mpi) == kOwn) return "";
  behind_mpi = next_mpi();
  behind_pmpi = next_pmpi();
  other_mpi = true;
  return mpi.dli_fname ? mpi.dli_fname : "another";
}

const char* launcher_of_another_mpi() {
  int size = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 1) return "";
  const char* const count = kOwn == Interface::open_mpi ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE";
  return environment_number(count, 1) > 1 ? count : "";
}

}  // namespace crimp
