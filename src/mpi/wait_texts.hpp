// Parts of what a rank says that waits too long (mpi/mpi_wait.hpp).
#pragma once
#include <mpi.h>

#include <cstdint>
#include <string>

namespace crimp {

struct AllreduceRequest;

std::string name_of(MPI_Comm);
std::string function_text(const AllreduceRequest&);  // what the program has called, "MPI_Iallreduce"
std::string call_text(const AllreduceRequest&);      // "MPI_Allreduce of 20000 x float32"
std::string absence_text(std::uint64_t min_count);   // why others may not be in the same call

}  // namespace crimp
