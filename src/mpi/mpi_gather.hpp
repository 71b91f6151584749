// Texts of all ranks, for rank 0.
#pragma once
#include <mpi.h>

#include <optional>
#include <string>
#include <vector>

namespace crimp {

// Collective over MPI_COMM_WORLD, whose errors return meanwhile. Rank 0 receives every rank's text, in rank order,
// padded with spaces; elsewhere the result is empty. Nothing where rank 0 has no memory for them. `mine` may be empty.
// Throws Error{transport_failed}.
std::optional<std::vector<std::string>> gather_texts(std::string mine, int rank, int size);

}  // namespace crimp
