/* Stands for a libcrimp_cuda.so of another build on rank 0; the others get the one that TESTED_PLUGIN names. */
#include <dlfcn.h>
#include <stdlib.h>

__attribute__((visibility("default"))) const void* crimp_cuda_plugin(const char* build, const char** why) {
  const char* of_open_mpi = getenv("OMPI_COMM_WORLD_RANK");
  const char* rank = of_open_mpi ? of_open_mpi : getenv("PMI_RANK");
  if (rank && atoi(rank) != 0) {
    void* library = dlopen(getenv("TESTED_PLUGIN"), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const void* (*entry)(const char*, const char**) =
        (const void* (*)(const char*, const char**))dlsym(library, "crimp_cuda_plugin");
    return entry(build, why);
  }
  *why = "it is of another build";
  return NULL;
}
