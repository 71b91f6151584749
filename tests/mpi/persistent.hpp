// MPI_Allreduce_init, where the MPI has it.
#pragma once
#include <mpi.h>

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

namespace check {

#if MPI_VERSION >= 4
inline constexpr bool kPersistent = true;
inline const auto allreduce_init = MPI_Allreduce_init;
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
inline constexpr bool kPersistent = true;
inline const auto allreduce_init = MPIX_Allreduce_init;
#else
inline constexpr bool kPersistent = false;
inline int allreduce_init(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*) {
  return MPI_ERR_OTHER;
}
#endif

}  // namespace check
