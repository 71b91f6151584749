#include "next.hpp"

#include <dlfcn.h>

namespace crimp {
namespace {

template <class F>
void find(F& to, const char* name, const char* otherwise) {
  void* symbol = ::dlsym(RTLD_NEXT, name);
  // libcrimp.so needs libmpi, so one of the two is always there.
  if (!symbol) symbol = ::dlsym(RTLD_NEXT, otherwise);
  to = reinterpret_cast<F>(symbol);
}

Next find_all(bool pmpi) {
  Next n{};
#define CRIMP_FIND(name) find(n.name, pmpi ? "PMPI_" #name : "MPI_" #name, pmpi ? "MPI_" #name : "PMPI_" #name)
  CRIMP_FIND(Init);
  CRIMP_FIND(Init_thread);
  CRIMP_FIND(Finalize);
  CRIMP_FIND(Allreduce);
  CRIMP_FIND(Pcontrol);
  CRIMP_FIND(Bcast);
  CRIMP_FIND(Gatherv);
  CRIMP_FIND(Reduce);
  CRIMP_FIND(Gather);
  CRIMP_FIND(Scatter);
  CRIMP_FIND(Scatterv);
  CRIMP_FIND(Allgather);
  CRIMP_FIND(Allgatherv);
  CRIMP_FIND(Alltoall);
  CRIMP_FIND(Alltoallv);
  CRIMP_FIND(Reduce_scatter);
  CRIMP_FIND(Reduce_scatter_block);
  CRIMP_FIND(Op_create);
  CRIMP_FIND(Op_free);
#undef CRIMP_FIND
  return n;
}

}  // namespace

const Next& next_mpi() {
  static const Next n = find_all(false);
  return n;
}

const Next& next_pmpi() {
  static const Next n = find_all(true);
  return n;
}

}  // namespace crimp
