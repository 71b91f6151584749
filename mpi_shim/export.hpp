// How a function of MPI's is exported. What is exported in all is listed in exports.map.
#pragma once
#include "next.hpp"
#include "other_mpi.hpp"

// MPI_<name> and PMPI_<name>: parameters as MPI has them, in parentheses; then what is handed to crimp::<function>,
// behind the functions of that name that come next in load order. Nothing of that is inlined: what is exported reads no
// argument, because over another MPI they are of other types (other_mpi.hpp).
#define CRIMP_EXPORT(name, function, parameters, ...) \
  CRIMP_EXPORT_AS(MPI_##name, name, function, parameters, __VA_ARGS__)
// Of an extension, MPIX_<name>.
#define CRIMP_EXPORT_X(name, function, parameters, ...) \
  CRIMP_EXPORT_AS(MPIX_##name, name, function, parameters, __VA_ARGS__)
#define CRIMP_EXPORT_AS(symbol, name, function, parameters, ...)                                \
  namespace crimp::own {                                                                        \
  __attribute__((noinline)) static int symbol parameters {                                      \
    crimp::entered = __builtin_frame_address(0);                                                \
    return crimp::function(crimp::next_mpi() __VA_OPT__(, ) __VA_ARGS__);                       \
  }                                                                                             \
  __attribute__((noinline)) static int P##symbol parameters {                                   \
    crimp::entered = __builtin_frame_address(0);                                                \
    return crimp::function(crimp::next_pmpi() __VA_OPT__(, ) __VA_ARGS__);                      \
  }                                                                                             \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) int symbol parameters {                     \
    if (__builtin_expect(crimp::other_mpi, false)) return crimp::behind_mpi.name(__VA_ARGS__);  \
    return crimp::own::symbol(__VA_ARGS__);                                                     \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) int P##symbol parameters {                  \
    if (__builtin_expect(crimp::other_mpi, false)) return crimp::behind_pmpi.name(__VA_ARGS__); \
    return crimp::own::P##symbol(__VA_ARGS__);                                                  \
  }
