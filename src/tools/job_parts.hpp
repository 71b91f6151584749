// The programs of a job as a launcher is told of them, each with options of its own, and what Crimp puts among these:
// LD_PRELOAD and the CRIMP_* variables.
#pragma once
#include <string>
#include <vector>

#include "command_line.hpp"
#include "mpi_family.hpp"

namespace crimp::tools {

// One of a job's programs, and what the launcher is told of it alone.
struct Part {
  Arguments options, program;
};

// options: the launcher's, in front of the first program; words: from that program on. Behind a ':' stand options in
// front of the next program. How many values each has only the launcher knows, so they end where something stands that
// can be started.
std::vector<Part> parts_of(Arguments options, const Arguments& words);

// What launcher's options set of CRIMP_*, as NAME=VALUE. of_all: for all of a job's programs, unlike Hydra's -env.
std::vector<std::string> settings_among(const Arguments& options, bool of_all = false);

// All programs with their options, and in each part what Crimp needs there: `library` preloaded, `mpi` behind it
// (empty: nothing), and this process's CRIMP_* variables. mpirun's ':' starts a program that takes none of the first
// one's -x, and settings must be the same on all ranks; Hydra's takes its -genv.
Arguments with_preloads(std::vector<Part>, const std::string& library, const std::string& mpi, LauncherKind);

}  // namespace crimp::tools
