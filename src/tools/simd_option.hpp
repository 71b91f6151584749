// --simd NAME: a bench on the instructions of a lesser processor.
#pragma once
#include <string>

#include "command_line.hpp"

namespace crimp::tools {

class SimdOption {
 public:
  explicit SimdOption(CommandLine&);  // which keeps a reference
  SimdOption(const SimdOption&) = delete;
  SimdOption& operator=(const SimdOption&) = delete;
  // Once the command line is read, and before MPI_Init: for the codecs of this program and for libcrimp.so's.
  void apply() const;

 private:
  std::string name_;
};

}  // namespace crimp::tools
