// Faults on demand, for tests. In ordinary builds fires() is a constant false and costs nothing.
//
// In a build with CRIMP_FAULTS, CRIMP_FAULT="name@rank[:nth][,...]" makes the nth (default: every) question for `name`
// on that MPI_COMM_WORLD rank answer true. Names: alloc, thread (it cannot be started), corrupt_body, corrupt_header,
// corrupt_wire, node_memory (no memory to share with the ranks of a node), plan (no memory to plan how a call travels),
// short_counts (a call of MPI's takes 1000 elements at most), older_mpi (MPI has no functions for large counts); in the
// chooser measure_codec, measure_network, measure_node (no memory for measuring these) and, given to all ranks or none,
// slow_link: exchanges and plain MPI are taken to need 1 ms and 100 us a byte, whatever was measured, and nothing is
// tried, so that no clock decides.
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
