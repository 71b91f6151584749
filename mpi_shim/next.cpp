#include "next.hpp"

#include <dlfcn.h>

namespace crimp {
namespace {

template <class F>
void find(F& to, bool& differ, const char* name, const char* otherwise) {
  void* symbol = ::dlsym(RTLD_NEXT, name);
  void* const other = ::dlsym(RTLD_NEXT, otherwise);
  // libcrimp.so needs libmpi, so one of the two is there, unless MPI is older than its headers here.
  if (!symbol) symbol = other;
  if (other && symbol != other) differ = true;
  to = reinterpret_cast<F>(symbol);
}

NextMpi find_all(bool pmpi) {
  NextMpi n{};
  bool other = false;  // MPI_x and PMPI_x are two functions
#define CRIMP_FIND_AS(name, symbol) find(n.name, other, pmpi ? "P" symbol : symbol, pmpi ? symbol : "P" symbol)
#define CRIMP_FIND(name) CRIMP_FIND_AS(name, "MPI_" #name)
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
  CRIMP_FIND(Iallreduce);
  CRIMP_FIND(Ireduce);
  CRIMP_FIND(Ireduce_scatter);
  CRIMP_FIND(Ireduce_scatter_block);
  CRIMP_FIND(Wait);
  CRIMP_FIND(Waitall);
  CRIMP_FIND(Waitany);
  CRIMP_FIND(Waitsome);
  CRIMP_FIND(Test);
  CRIMP_FIND(Testall);
  CRIMP_FIND(Testany);
  CRIMP_FIND(Testsome);
  CRIMP_FIND(Request_get_status);
  CRIMP_FIND(Request_get_status_any);
  CRIMP_FIND(Request_get_status_all);
  CRIMP_FIND(Request_get_status_some);
  CRIMP_FIND(Request_free);
  CRIMP_FIND(Start);
  CRIMP_FIND(Startall);
#if MPI_VERSION >= 4
  CRIMP_FIND(Allreduce_init);
#else
  CRIMP_FIND_AS(Allreduce_init, "MPIX_Allreduce_init");  // null where there is none
#endif
  CRIMP_FIND(Comm_dup);
  CRIMP_FIND(Comm_dup_with_info);
  CRIMP_FIND(Comm_create);
  CRIMP_FIND(Comm_create_group);
  CRIMP_FIND(Comm_split);
  CRIMP_FIND(Comm_split_type);
  CRIMP_FIND(Cart_create);
  CRIMP_FIND(Cart_sub);
  CRIMP_FIND(Comm_free);
  CRIMP_FIND(Comm_disconnect);
#if MPI_VERSION >= 4
  CRIMP_FIND(Allreduce_c);
  CRIMP_FIND(Iallreduce_c);
  CRIMP_FIND(Allreduce_init_c);
  CRIMP_FIND(Reduce_c);
  CRIMP_FIND(Reduce_scatter_c);
  CRIMP_FIND(Reduce_scatter_block_c);
  CRIMP_FIND(Ireduce_c);
  CRIMP_FIND(Ireduce_scatter_c);
  CRIMP_FIND(Ireduce_scatter_block_c);
#endif
  CRIMP_FIND(Op_create);
  CRIMP_FIND(Op_free);
#undef CRIMP_FIND
#undef CRIMP_FIND_AS
  n.pmpi = pmpi;
  n.tool = other && !pmpi;
  return n;
}

}  // namespace

constinit std::atomic<const NextMpi*> found_mpi{nullptr}, found_pmpi{nullptr};

const NextMpi& find_next_mpi() {
  static const NextMpi n = find_all(false);
  found_mpi.store(&n, std::memory_order_release);
  return n;
}

const NextMpi& find_next_pmpi() {
  static const NextMpi n = find_all(true);
  found_pmpi.store(&n, std::memory_order_release);
  return n;
}

}  // namespace crimp
