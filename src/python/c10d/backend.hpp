// The c10d backend "crimp": sums of floating-point tensors by crimp_allreduce and crimp_reduce_scatter_block,
// everything else by MPI as it is.
#pragma once
#include <mpi.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include <atomic>

#include "tensors.hpp"
#include "work.hpp"

namespace crimp_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A group of ranks on a communicator of its own, whose errors return. Collectives run one after the other on the
// group's thread, in the order of their calls; messages start in the caller's. A failure is the Work's exception.
class Backend : public Base {
 public:
  // Collective over the group's ranks. `members`: their numbers in the default group, empty for that group itself,
  // which has all of MPI's ranks; `name` tells groups apart that are made at one time. `timeout`: of messages whose
  // wait() names none.
  static c10::intrusive_ptr<Base> create(int rank, int size, const std::vector<int>& members, const std::string& name,
                                         std::chrono::milliseconds timeout);
  ~Backend() override;

  const std::string getBackendName() const override { return "crimp"; }
  MPI_Comm communicator() const { return comm_; }
  // Runs `task` on the group's thread after what was called before, and returns when it has.
  void run_in_turn(const char* title, std::function<void()> task);

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
#if TORCH_VERSION_MAJOR >= 2
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
#endif
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  // The collective calls so far, which TORCH_DISTRIBUTED_DEBUG=DETAIL compares between ranks.
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }
  void setSequenceNumberForGroup() override {}

  Backend(int rank, int size, MPI_Comm comm, std::chrono::milliseconds timeout);

 private:
  friend void end_groups(bool orderly);
  c10::intrusive_ptr<QueuedWork> put(c10d::OpType type, const char* title, Tensors outputs, std::function<void()> task);
  WorkPtr receive(Tensors& tensors, int from, int tag, c10d::OpType type);

  MPI_Comm comm_;
  std::chrono::milliseconds timeout_;
  std::atomic<std::uint64_t> calls_{0};
  const std::shared_ptr<WorkQueue> queue_ = std::make_shared<WorkQueue>();
};

// The end of the process. Orderly: all groups finish what was called, and MPI ends. Otherwise nothing waits for
// anybody, because other ranks may never come, and the launcher ends them.
void end_groups(bool orderly);

}  // namespace crimp_torch
