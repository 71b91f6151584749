// All of it as one, because reading torch's headers takes most of the time of compiling.
#include "backend.cpp"      // NOLINT
#include "labels.cpp"       // NOLINT
#include "module.cpp"       // NOLINT
#include "mpi_process.cpp"  // NOLINT
#include "reduction.cpp"    // NOLINT
#include "sums.cpp"         // NOLINT
#include "tensors.cpp"      // NOLINT
#include "work.cpp"         // NOLINT
