// Faults on demand, for tests. In ordinary builds fires() is a constant false and costs nothing.
//
// In a build with CRIMP_FAULTS, CRIMP_FAULT="name@rank[:nth][,...]" makes the nth (default: every) question for `name` on that
// MPI_COMM_WORLD rank answer true. Names: alloc, corrupt_body, corrupt_header, corrupt_wire.
#pragma once

namespace crimp::fault {

#ifdef CRIMP_FAULTS
bool fires(const char* name);
void set_rank(int world_rank);
#else
constexpr bool fires(const char*) { return false; }
constexpr void set_rank(int) {}
#endif

}  // namespace crimp::fault
