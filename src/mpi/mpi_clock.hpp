// The clocks of ranks compared with rank 0's, for the trace: each asks rank 0 some times what time it is, and the
// shortest answer counts.
#pragma once
#include <mpi.h>

#include "core/clock_line.hpp"

namespace crimp {

class MpiClock {
 public:
  // All three are collective over MPI_COMM_WORLD and throw Error{transport_failed}. Rank 0 serves one rank after
  // another: some tens of microseconds for each.
  void open(int rank, int size);  // compares, and takes this moment of rank 0 as the time called 0
  void compare_again();
  void close();

  const ClockLine& line() const { return line_; }

 private:
  void compare(std::optional<ClockSample>&, const char* where);
  MPI_Comm comm_ = MPI_COMM_NULL;  // its own: the program's messages are no concern of its
  int rank_ = 0, size_ = 1;
  ClockLine line_;
};

}  // namespace crimp
