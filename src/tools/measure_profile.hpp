// `crimp plan --measure`: a cluster's profile, by what it takes there.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cluster_profile.hpp"
#include "core/settings.hpp"

namespace crimp::tools {

struct ProfileSetup {
  std::vector<std::string> codecs;
  std::uint64_t most_bytes;  // of the longest call's floats
  double seconds;            // about, of each codec with each algorithm at each size
};

// Before MPI_Init: what libcrimp.so must find in the environment.
void prepare_profile();
// Collective over MPI_COMM_WORLD, which has two ranks or more; all ranks have the same profile. Calls are measured as a
// step makes them: one behind another.
ClusterProfile measure_profile(const ProfileSetup&, const Settings&);

}  // namespace crimp::tools
