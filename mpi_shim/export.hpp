// How a function of MPI's is exported. What is exported in all is listed in exports.map.
#pragma once
#include "next.hpp"

// MPI_<name> and PMPI_<name>: parameters as MPI has them, in parentheses; then what is handed to crimp::<function>,
// behind the functions of that name that come next in load order.
#define CRIMP_EXPORT(name, function, parameters, ...) CRIMP_EXPORT_AS(MPI_##name, function, parameters, __VA_ARGS__)
// Of an extension, MPIX_<name>.
#define CRIMP_EXPORT_X(name, function, parameters, ...) CRIMP_EXPORT_AS(MPIX_##name, function, parameters, __VA_ARGS__)
#define CRIMP_EXPORT_AS(name, function, parameters, ...)                   \
  __attribute__((visibility("default"))) int name parameters {             \
    return crimp::function(crimp::next_mpi() __VA_OPT__(, ) __VA_ARGS__);  \
  }                                                                        \
  __attribute__((visibility("default"))) int P##name parameters {          \
    return crimp::function(crimp::next_pmpi() __VA_OPT__(, ) __VA_ARGS__); \
  }
