// How a function of MPI's is exported. What is exported in all is listed in exports.map.
#pragma once
#include "next.hpp"
#include "other_mpi.hpp"

// MPI_<name> and PMPI_<name>: parameters as MPI has them, in parentheses; then what is handed to crimp::<function>,
// behind the functions of that name that come next in load order. Nothing of that is inlined: what is exported reads no
// argument, because over another MPI they are of other types (other_mpi.hpp).
#define CRIMP_EXPORT(name, function, parameters, ...)                                           \
  namespace crimp::own {                                                                        \
  __attribute__((noinline)) static int MPI_##name parameters {                                  \
    crimp::entered = __builtin_frame_address(0);                                                \
    return crimp::function(crimp::next_mpi() __VA_OPT__(, ) __VA_ARGS__);                       \
  }                                                                                             \
  __attribute__((noinline)) static int PMPI_##name parameters {                                 \
    crimp::entered = __builtin_frame_address(0);                                                \
    return crimp::function(crimp::next_pmpi() __VA_OPT__(, ) __VA_ARGS__);                      \
  }                                                                                             \
  }                                                                                             \
  __attribute__((visibility("default"))) int MPI_##name parameters {                            \
    if (__builtin_expect(crimp::other_mpi, false)) return crimp::behind_mpi.name(__VA_ARGS__);  \
    return crimp::own::MPI_##name(__VA_ARGS__);                                                 \
  }                                                                                             \
  __attribute__((visibility("default"))) int PMPI_##name parameters {                           \
    if (__builtin_expect(crimp::other_mpi, false)) return crimp::behind_pmpi.name(__VA_ARGS__); \
    return crimp::own::PMPI_##name(__VA_ARGS__);                                                \
  }
