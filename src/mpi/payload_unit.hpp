// Payloads as MPI counts them.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <span>
#include <vector>

namespace crimp {

// 64 bytes as one element: int counts and displacements then reach 128 GiB.
MPI_Datatype payload_unit();
// A multiple of 64 bytes in them. Throws Error{argument_invalid} beyond.
int payload_units(std::uint64_t bytes);
void payload_units(std::span<const std::uint64_t> bytes, std::vector<int>& to);

}  // namespace crimp
