// Open MPI's own allreduce algorithms, one communicator each, so that Crimp is compared with the best of them and not
// with a default.
//
// A communicator keeps the algorithm that the control variable coll_tuned_allreduce_algorithm named when it was made,
// provided that coll_tuned_use_dynamic_rules was set before MPI_Init (seen with Open MPI 4.1.4; without it writing the
// variable changes nothing).
#pragma once
#include <mpi.h>

#include <string>
#include <vector>

namespace crimp::tools {

struct PlainAlgorithm {
  std::string name;  // "default", "basic_linear", ..., as ompi_info names them
  MPI_Comm comm;     // a duplicate of MPI_COMM_WORLD; lives as long as MPI
};

// Before MPI_Init.
void request_plain_algorithms();
// After MPI_Init, collective. "default" first; it is the only one where this MPI has no such variable, which *problem
// then says.
std::vector<PlainAlgorithm> plain_algorithms(bool every, std::string* problem);

}  // namespace crimp::tools
