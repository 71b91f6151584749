// How a function of MPI's is exported. What is exported in all is listed in exports.map.
#pragma once
#include "next.hpp"

// MPI_<name> and PMPI_<name>: parameters as MPI has them, in parentheses; then what is handed to crimp::<function>,
// behind the functions of that name that come next in load order.
#define CRIMP_EXPORT(name, function, parameters, ...)                      \
  __attribute__((visibility("default"))) int MPI_##name parameters {       \
    return crimp::function(crimp::next_mpi() __VA_OPT__(, ) __VA_ARGS__);  \
  }                                                                        \
  __attribute__((visibility("default"))) int PMPI_##name parameters {      \
    return crimp::function(crimp::next_pmpi() __VA_OPT__(, ) __VA_ARGS__); \
  }
