// Horovod in this process: recognised by its reduce operation, followed per communicator.
//
// Until Horovod is recognised every observed call pays one relaxed load. Its calls come from one background thread.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/clock.hpp"
#include "horovod/record.hpp"
#include "schedule/layout.hpp"

namespace crimp::horovod {

class Negotiation;

class Observer {
 public:
  static Observer& get() {
    Observer* const made = made_.load(std::memory_order_acquire);
    return made ? *made : make();
  }

  void detect();  // Horovod made an operation: it runs in this process, and this thread is its own
  // Whether this thread is. Its calls are of Horovod on all of a communicator's ranks, whatever other ranks there are
  // in MPI_COMM_WORLD.
  static bool in_its_thread();
  bool detected() const { return detected_.load(std::memory_order_relaxed); }

  // Before an allreduce in place: the gate may clear bits of this rank's own input.
  void before_allreduce(void* in_place, int words, MPI_Datatype, MPI_Op, MPI_Comm);
  // Calls of Horovod's controller, on whatever communicator; no-ops for others'.
  void after_allreduce(const void* result, int words, MPI_Datatype, MPI_Op, MPI_Comm);
  void after_gatherv(MPI_Datatype sent, MPI_Comm);
  void after_bcast(const void* bytes, int count, MPI_Datatype, int root, MPI_Comm);

  // The layout of a data call, of its buffer to receive in; null where the communicator is not one of Horovod's.
  std::shared_ptr<const Layout> data_call(const void* received, std::uint64_t count, Dtype, MPI_Comm);

  // Where plans are searched (CRIMP_MERGE=auto): a data call has begun now; what times() gave when it is over.
  std::optional<Clock::time_point> times() const;
  void called(std::optional<Clock::time_point> begin, int count, MPI_Datatype, MPI_Comm);

  // Whether a sum is one of Adasum's dot products: float64 from Horovod's thread on a communicator on which it does not
  // negotiate. (Gradients that NCCL has summed within hosts are such sums too where they are float64, which is rare;
  // they pass through then.)
  bool is_adasum(Dtype, MPI_Comm);

  void finish();  // before MPI_Finalize: what was counted goes into the report

 private:
  Observer() = default;
  Negotiation* find(MPI_Comm, bool make);
  void note(const Record&);  // into the report, with mutex_ held
  static int forget(MPI_Comm, int keyval, void* negotiation, void* extra);
  static Observer& make();
  static std::atomic<Observer*> made_;
  std::atomic<bool> detected_{false}, searches_{false};
  std::atomic<int> keyval_{MPI_KEYVAL_INVALID};
  std::mutex mutex_;
  std::vector<Negotiation*> live_;         // in the order of their making, which CRIMP_REPLAY repeats
  Record noted_;                           // sum over the communicators that have ended
  std::weak_ptr<std::int64_t> threshold_;  // Horovod's, of all its communicators
};

}  // namespace crimp::horovod
