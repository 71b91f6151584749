// CRIMP_SKEW: ranks meet ahead of a call, so that a rank's waiting for others is told from transfer, and who came last
// from how long each waited: clocks of different hosts are not compared.
//
// The meeting is an allreduce of three numbers, which no rank leaves before all have come. It carries what each waited
// at the meeting before, so whoever came last to that is known one call later, and of the last call never.
#pragma once
#include <mpi.h>

#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "core/records.hpp"
#include "mpi/request.hpp"

namespace crimp {

class Report;
class Trace;

// Of one communicator. Not thread-safe.
class Arrivals {
 public:
  // world_ranks outlives this. Null trace: none.
  Arrivals(MPI_Comm, int rank, int size, const std::vector<int>& world_ranks, Trace*, std::uint32_t in_trace);
  // Collective: seconds that this rank waited. `number`: of the call to come, for the trace. Throws
  // Error{transport_failed}.
  double meet(const AllreduceRequest&, std::uint32_t number);
  // The last meeting has no followers: nobody is named for it.
  void note_in(Report&) const;

 private:
  struct Meeting {
    Clock::time_point begin, end;
    std::uint32_t number;
  };
  void trace(int last, double lost_s) const;

  MPI_Comm comm_;
  int rank_, size_;
  const std::vector<int>& world_ranks_;
  Trace* trace_;
  std::uint32_t in_trace_;
  std::optional<Meeting> before_;
  SkewRecord record_;
};

}  // namespace crimp
