// Which libcrimp.so a job's ranks preload, and what of MPI's they need with it.
#pragma once
#include <filesystem>
#include <string>

#include "mpi_family.hpp"

namespace crimp::tools {

// The library for a program's MPI: the first one, or crimp/SONAME/libcrimp.so beside it. Where the soname is not known
// (empty), the one whose MPI is found here: in the launcher's installation, or by the dynamic linker. Throws
// Error{argument_invalid}: there is no library, or none for that family.
std::filesystem::path library_for(MpiFamily, const std::string& soname, const std::string& mpirun);

// What the library is built for. Throws Error{argument_invalid}: it is none of Crimp's, or for another family than the
// job's (unknown: for any).
MpiOfFile check_library(const std::string& library, MpiFamily);

// What else is preloaded: of a script, or a program that finds no MPI (`wanted`), the library's own MPI, which would
// not be found either (a module or a wheel that is no place of the linker's). Empty: nothing.
std::string mpi_to_preload(const MpiOfFile& built, const MpiOfFile& wanted, const std::string& mpirun);

}  // namespace crimp::tools
