// The element types of the C interface as MPI knows them.
#pragma once
#include <mpi.h>

#include "crimp/crimp.h"

namespace crimp {

struct Handles {
  MPI_Datatype type;
  MPI_Op sum;
};

// Throws Error{argument_invalid}.
Handles handles(crimp_dtype);

}  // namespace crimp
