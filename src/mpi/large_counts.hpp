// Counts beyond those of MPI's functions that take an int.
#pragma once
#include <algorithm>
#include <cstdint>

namespace crimp {

// The most elements that one such call gets of ours; below INT_MAX.
std::uint64_t most_elements();

bool has_large_counts();  // false where a fault (older_mpi) hides MPI's functions with an MPI_Count

// one(first element, count) for one part after another, in order, until one fails; once for no elements. Returns an MPI
// code, and 0 is MPI_SUCCESS.
template <class One>
int in_parts(std::uint64_t count, const One& one) {
  const std::uint64_t most = most_elements();
  std::uint64_t at = 0;
  do {
    if (const int rc = one(at, static_cast<int>(std::min(most, count - at)))) return rc;
    at += most;
  } while (at < count);
  return 0;
}

}  // namespace crimp
