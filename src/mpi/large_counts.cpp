#include "mpi/large_counts.hpp"

#include "core/fault.hpp"

namespace crimp {

std::uint64_t most_elements() { return fault::fires("short_counts") ? 1000 : std::uint64_t{1} << 30; }

bool has_large_counts() { return !fault::fires("older_mpi"); }

}  // namespace crimp
