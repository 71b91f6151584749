// The loaded modules (the program, shared libraries) that call MPI's reductions, and where their calls lead.
#pragma once
#include <string>
#include <vector>

#include "functions.hpp"

namespace crimp {

struct Caller {
  const MpiFunction* function;
  std::string module,
      target;           // files; target: what the call is bound to, or what the dynamic linker would bind it to now
  bool caught = false;  // the call leads to Crimp, directly or through another tool
  bool past = false;    // ... to the MPI library, likewise, without Crimp. Neither: to a tool, which may hand it on
  bool meant = false;   // it should: Crimp is preloaded or linked into the program, or the module depends on it
};

// When Crimp is loaded, once: is it in the global scope, preloaded or linked into the program? What opens a library
// that needs Crimp with RTLD_GLOBAL later (Horovod does) puts Crimp there too late for what was loaded before.
void note_scope();

// As the relocations of the modules say, a row for each module and function, in the table's order; not known are calls
// through pointers that a program looks up itself (ctypes, cffi), and, where relocations have no addends (32-bit
// machines), all of them. Without the libraries that define the function.
std::vector<Caller> callers();

// The first function for a module that would be loaded now, where none calls any yet; module is empty.
Caller next_caller();

std::vector<std::string> loaded_modules();  // files; the program is the first
std::string program_file();
std::string own_file();  // libcrimp.so's

}  // namespace crimp
