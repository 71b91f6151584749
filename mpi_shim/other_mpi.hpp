// The MPI that a process uses may be of the other family than the one this library was built for: Open MPI, whose
// handles are pointers, or MPICH and what has its binary interface, whose handles are integers.
#pragma once
#include <string>

#include "next.hpp"

namespace crimp {

// Then no handle of the program's can be read here, and every function hands its arguments on as they came, in the same
// registers (the call is the last thing it does, so that the compiler jumps): through these, the functions behind ours.
// Known when the library is loaded, which is when it is said.
extern constinit bool other_mpi;
extern constinit NextMpi behind_mpi, behind_pmpi;  // entered by MPI_x, by PMPI_x

// Where the frame of the function lies that this thread's last call entered by: frames of ours below it are that
// call's.
extern constinit thread_local const void* entered __attribute__((tls_model("initial-exec")));

struct OtherMpi {
  std::string file;      // the library; empty: there is none
  std::string launcher;  // that jobs of such an MPI have
  std::string module;    // that needs it; empty: the program
};

// Once, when the library is loaded: the MPI behind us, if it is of the other family.
OtherMpi find_other_mpi();

// In a call that comes from a library (an extension of Python's, a plug-in): the MPI of the other family that it needs,
// itself or by what it needs, unless it needs one of ours as well. Such a library came later than the MPI that this one
// has brought, and what it calls goes there, handles and all, whether we take it or not: that can only be said.
OtherMpi find_callers_mpi();

// "Open MPI" or "MPICH": what this library was built for.
extern const char* const kOwnMpi;

// After MPI_Init: what there is to warn of where each rank is alone in its MPI_COMM_WORLD though the launcher, of the
// other family, started several.
const char* launcher_of_another_mpi();

}  // namespace crimp
