// Sums that do not block (MPI_Iallreduce, MPI_Ireduce_scatter and their kin) or are repeated (persistent ones): encoded
// where they start, one exchange of algorithm one_shot, decoded where MPI says that it is complete. Everything here is
// local: nothing is agreed, measured or waited for, so that MPI's progress rule holds for them as it does for MPI's
// own.
//
// Hence what blocking calls do collectively they do not have: no choice by measured times (a sum is compressed where
// its frames are fewer bytes than plain MPI's, or CRIMP_ALGORITHM, under CRIMP_REPLAY that of the recorded job, names
// an algorithm), no tensors known by their values (CRIMP_UNKNOWN_LAYOUT), no way back to an exact sum. Finite values of
// any size are carried, in units of a power of two of their rank where the codec's range asks for it; where a rank has
// NaN or Inf every element of the sum, of all shares where there are shares, is NaN.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "collective/call_plan.hpp"
#include "core/pass_reason.hpp"
#include "core/stall.hpp"
#include "mpi/context.hpp"
#include "mpi/request.hpp"

namespace crimp {

class NonblockingSums;

// One sum. Its MPI request is the caller's to complete; between start() and finish() buffers are MPI's.
class NonblockingSum {
 public:
  virtual ~NonblockingSum() = default;
  // Encodes; then a sum is under way, and a persistent one's request is to be started. What fails here is this rank's
  // word to the others.
  virtual void start() = 0;
  // MPI has started a persistent sum's request: one that it refused is started again as if it had not been asked for.
  virtual void started() noexcept = 0;
  // The request is complete: the result goes to the caller's buffer. Throws Error.
  virtual void finish() = 0;
  virtual MPI_Request request() const = 0;
  // The request is waited for in that function of MPI's; in any thread.
  virtual void look(StallWatch&, const char* function) const noexcept = 0;
  virtual MPI_Comm comm() const = 0;  // MPI_COMM_NULL once it has been freed
};

// A communicator's. Sums on it are started in one order (MPI-3.1, 5.12), and may end in any thread.
class NonblockingSums {
 public:
  // Of ranks of one MPI_COMM_WORLD, whose settings agree.
  static std::shared_ptr<NonblockingSums> make(const Context&, MPI_Comm, int rank, int size);
  virtual ~NonblockingSums() = default;

  // Null: the call is for MPI, on all ranks, for *why. Not started yet, which the others count on. Throws
  // Error{out_of_memory} where there is no room for the frames: others wait for this rank, as where MPI has none.
  virtual std::unique_ptr<NonblockingSum> make_sum(const AllreduceRequest&, PassReason* why) = 0;
  // A persistent sum, not started: its tensor is its own, with a residual. Where this MPI has none: null.
  virtual std::unique_ptr<NonblockingSum> init(const AllreduceRequest&, PassReason* why) = 0;
  virtual void freed() = 0;  // by MPI_Comm_free

  // Sums of any communicator that are not deleted yet: they may be completed as late as in MPI_Finalize, by what a
  // program has attached to MPI_COMM_SELF (MPI-3.1, 8.7.1).
  static int outstanding();
};

}  // namespace crimp
