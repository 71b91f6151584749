// The functions behind ours: the next MPI library or tool in load order.
//
// A caller of MPI_x is passed on to the next MPI_x (a PMPI tool behind us then sees the call), a caller of PMPI_x
// (Fortran bindings, a tool before us) to the next PMPI_x.
#pragma once
#include <mpi.h>

#include <atomic>

namespace crimp {

struct NextMpi {
  bool pmpi;  // entered by PMPI_x
  bool tool;  // a tool stands behind us, which may come back by PMPI_x
  int (*Init)(int*, char***);
  int (*Init_thread)(int*, char***, int, int*);
  int (*Finalize)();
  int (*Allreduce)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  int (*Pcontrol)(int, ...);
  int (*Bcast)(void*, int, MPI_Datatype, int, MPI_Comm);
  int (*Gatherv)(const void*, int, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, int, MPI_Comm);
  decltype(&PMPI_Reduce) Reduce;
  decltype(&PMPI_Gather) Gather;
  decltype(&PMPI_Scatter) Scatter;
  decltype(&PMPI_Scatterv) Scatterv;
  decltype(&PMPI_Allgather) Allgather;
  decltype(&PMPI_Allgatherv) Allgatherv;
  decltype(&PMPI_Alltoall) Alltoall;
  decltype(&PMPI_Alltoallv) Alltoallv;
  decltype(&PMPI_Reduce_scatter) Reduce_scatter;
  decltype(&PMPI_Reduce_scatter_block) Reduce_scatter_block;
  decltype(&PMPI_Iallreduce) Iallreduce;
  decltype(&PMPI_Ireduce) Ireduce;
  decltype(&PMPI_Ireduce_scatter) Ireduce_scatter;
  decltype(&PMPI_Ireduce_scatter_block) Ireduce_scatter_block;
  decltype(&PMPI_Wait) Wait;
  decltype(&PMPI_Waitall) Waitall;
  decltype(&PMPI_Waitany) Waitany;
  decltype(&PMPI_Waitsome) Waitsome;
  decltype(&PMPI_Test) Test;
  decltype(&PMPI_Testall) Testall;
  decltype(&PMPI_Testany) Testany;
  decltype(&PMPI_Testsome) Testsome;
  decltype(&PMPI_Request_get_status) Request_get_status;
  // Of MPI 4.1; null over an older one.
  int (*Request_get_status_any)(int, const MPI_Request*, int*, int*, MPI_Status*);
  int (*Request_get_status_all)(int, const MPI_Request*, int*, MPI_Status*);
  int (*Request_get_status_some)(int, const MPI_Request*, int*, int*, MPI_Status*);
  decltype(&PMPI_Request_free) Request_free;
  decltype(&PMPI_Start) Start;
  decltype(&PMPI_Startall) Startall;
  int (*Allreduce_init)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*);
  decltype(&PMPI_Comm_dup) Comm_dup;
  decltype(&PMPI_Comm_dup_with_info) Comm_dup_with_info;
  decltype(&PMPI_Comm_create) Comm_create;
  decltype(&PMPI_Comm_create_group) Comm_create_group;
  decltype(&PMPI_Comm_split) Comm_split;
  decltype(&PMPI_Comm_split_type) Comm_split_type;
  decltype(&PMPI_Cart_create) Cart_create;
  decltype(&PMPI_Cart_sub) Cart_sub;
  decltype(&PMPI_Comm_free) Comm_free;
  decltype(&PMPI_Comm_disconnect) Comm_disconnect;
#if MPI_VERSION >= 4
  // Null over an MPI that is older than the headers.
  decltype(&PMPI_Allreduce_c) Allreduce_c;
  decltype(&PMPI_Iallreduce_c) Iallreduce_c;
  decltype(&PMPI_Allreduce_init_c) Allreduce_init_c;
  decltype(&PMPI_Reduce_c) Reduce_c;
  decltype(&PMPI_Reduce_scatter_c) Reduce_scatter_c;
  decltype(&PMPI_Reduce_scatter_block_c) Reduce_scatter_block_c;
  decltype(&PMPI_Ireduce_c) Ireduce_c;
  decltype(&PMPI_Ireduce_scatter_c) Ireduce_scatter_c;
  decltype(&PMPI_Ireduce_scatter_block_c) Ireduce_scatter_block_c;
#endif
  int (*Op_create)(MPI_User_function*, int, MPI_Op*);
  int (*Op_free)(MPI_Op*);
};

// Looked up at the first use, and never freed.
extern constinit std::atomic<const NextMpi*> found_mpi, found_pmpi;
const NextMpi& find_next_mpi();
const NextMpi& find_next_pmpi();

inline const NextMpi& next_mpi() {  // entered by MPI_x
  const NextMpi* const found = found_mpi.load(std::memory_order_acquire);
  return found ? *found : find_next_mpi();
}
inline const NextMpi& next_pmpi() {  // entered by PMPI_x
  const NextMpi* const found = found_pmpi.load(std::memory_order_acquire);
  return found ? *found : find_next_pmpi();
}

}  // namespace crimp
