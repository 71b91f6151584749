// A file of hosts, for launchers that each have a form of their own.
//
//   node1 slots=4     as Open MPI writes it, other words of a line are its own
//   node2:4           as MPICH does
//   node3             # behind a number sign anything may stand
#pragma once
#include <string>
#include <vector>

#include "command_line.hpp"
#include "mpi_family.hpp"

namespace crimp::tools {

struct Host {
  std::string name;
  int slots = 0;  // 0: not said
};

// Throws Error{argument_invalid}, which names the line that is at fault; a file without hosts is at fault, too.
std::vector<Host> read_hosts(const std::string& file);
// The launcher's options for it: Open MPI has its own files as they are, Hydra a list with slots, Slurm one of names,
// because there the allocation has the slots.
Arguments host_options(const std::string& file, LauncherKind);

}  // namespace crimp::tools
