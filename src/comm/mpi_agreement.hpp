// Whether all ranks say the same, found out before anybody acts on it.
#pragma once
#include <mpi.h>

#include <string>

namespace crimp {

// Collective. Throws Error{call_differs} on all ranks alike where the texts are not equal: it names `what`, and two ranks' texts.
void require_equal(MPI_Comm, int size, const std::string& what, const std::string& mine);

}  // namespace crimp
