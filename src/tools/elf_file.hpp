// Which of MPI's reductions a program or a library calls, read from its file.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "functions.hpp"

namespace crimp::tools {

struct ElfCalls {
  std::vector<const MpiFunction*> called;  // undefined symbols, in the table's order
  std::vector<const MpiFunction*> named;   // strings besides: it may look them up when it runs
  std::vector<const MpiFunction*> defined;
  bool is_mpi = false;              // defines the first of the table itself
  bool is_crimp = false;            // defines crimp_version()
  bool has_own_mpi = false;         // a program that an MPI library is linked into statically, unless it is stripped
  std::string named_sum;            // the first of crimp.h's own sums that it calls; empty: none
  std::string interpreter;          // of a program; a library has none
  std::vector<std::string> needed;  // by the file itself: sonames
};

// Nothing where the file is none of this machine's kind, or has no section table.
std::optional<ElfCalls> read_calls(const std::string& file);

// What the dynamic linker would load with it, in the order in which it looks symbols up: preloads first. It only lists;
// nothing of the file is run.
std::vector<std::string> loaded_with(const std::string& file);

}  // namespace crimp::tools
