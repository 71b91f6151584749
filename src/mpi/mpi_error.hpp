// What MPI returns, as Error.
#pragma once

namespace crimp {

// Throws Error{transport_failed} that names the call unless rc is MPI_SUCCESS.
void check_mpi(int rc, const char* call);
// The same without an MPI code, for a communicator of Crimp's own.
void check_private(int rc, const char* call);

}  // namespace crimp
