// Does MPI_Allreduce really lead here? Linked (not preloaded), Crimp is bypassed where libmpi came into the global scope first, as after
// "from mpi4py import MPI"; then nothing of it is ever called. Looked at when the process ends: one warning, or the answer for `crimp check`.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "allreduce.hpp"
#include "comm/runtime.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"

namespace crimp {
namespace {

std::string file_of(const void* address) {
  Dl_info info;
  return address && ::dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

void check() {
  const std::string ours = file_of(reinterpret_cast<const void*>(&allreduce));
  const std::string resolved = file_of(::dlsym(RTLD_DEFAULT, "MPI_Allreduce"));
  const std::string answer = environment_text("CRIMP_CHECK");
  if (!answer.empty())
    if (std::FILE* file = std::fopen(answer.c_str(), "a")) {
      std::fprintf(file, "%s\t%s\n", resolved == ours ? "crimp" : "bypassed", resolved.c_str());
      std::fclose(file);
    }
  int initialized = 0;
  PMPI_Initialized(&initialized);
  const bool used = initialized && !Runtime::get().started();
  if (used && resolved != ours && environment_number("OMPI_COMM_WORLD_RANK", 0) == 0)
    log(LogLevel::warn, "loaded but bypassed: MPI_Allreduce resolves to " + resolved + ", which was there first (mpi4py imported before?); preload " +
                            ours + " instead");
}

__attribute__((constructor)) void watch() { std::atexit(check); }

}  // namespace
}  // namespace crimp
