// What a call of the backend gives back: a Work that torch waits for.
#pragma once
#include <ATen/core/ivalue.h>
#include <mpi.h>
#include <sys/types.h>

#include <torch/version.h>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace crimp_torch {

// A tensor as MPI takes it: contiguous, in host memory, perhaps of another type. The same storage where that is so
// already.
class HostTensor {
 public:
  explicit HostTensor(at::Tensor tensor, c10::optional<at::ScalarType> type = c10::nullopt);
  at::Tensor& host() { return host_; }
  void* data() { return host_.data_ptr(); }
  void give_back();  // copies into the tensor what MPI wrote, unless it is there

 private:
  at::Tensor tensor_, host_;
};

// A communication hook's calls are a chain, with those of what is chained to their futures, which a group runs as one.
// Whether a rank makes the latter before or behind those that follow the hook is a matter of time.
// Works that this thread makes are of a new chain until leave_chain() is given the result; of its present one, if any.
std::uint64_t enter_chain();
void leave_chain(std::uint64_t before);

// A task that a group's thread runs. Its future has the list of output tensors, or what the task threw.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork(c10d::OpType type, const char* title, std::vector<at::Tensor> outputs, std::function<void()> task);
  void run() noexcept;       // the task
  void complete() noexcept;  // tells whoever waits, and runs what was chained to the future
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::uint64_t chain() const { return chain_; }

 private:
  std::vector<at::Tensor> outputs_;
  std::function<void()> task_;
  std::exception_ptr failure_;
  const bool inference_;       // the caller's mode
  const std::uint64_t chain_;  // of the thread that made it
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A message under way. Whoever waits or asks lets MPI progress. A receive that nobody waits for any more is cancelled,
// so that it does not take a later one's message; a send keeps its memory.
class MessageWork : public c10d::Work {
 public:
  // `timeout`: of a wait() that names none; 0 waits for ever.
  MessageWork(c10d::OpType type, const char* title, HostTensor tensor, std::chrono::milliseconds timeout);
  ~MessageWork() override;
  MPI_Request* request() { return &request_; }
  void* data() { return tensor_.data(); }

  bool isCompleted() override;  // throws where MPI has ended first
  bool isSuccess() const override;
  int sourceRank() const override { return source_; }
  bool wait(std::chrono::milliseconds timeout) override;

 private:
  bool progress();
  bool give_up() noexcept;  // whether MPI is through with the tensor

  HostTensor tensor_;
  std::chrono::milliseconds timeout_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int source_ = -1;
  const pid_t process_;
};

// Runs works in the order in which they are put, one at a time, on threads of its own: while what was chained to one
// work's future runs, which may wait for a later work (as torch's PowerSGD hook does), another thread goes on. From a
// chain's first work on the works that are not of it wait until none of it is there, and none is being told of. What is
// chained may destroy the group that owns this, so who waits here without the group shares the queue.
class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue();  // leaves the threads alone if leave() was called, else as finish()
  void put(c10::intrusive_ptr<QueuedWork> work);
  // Returns when all works have run; none may be put any more. `last` runs behind them, unless the end had come before:
  // it must not throw.
  void finish(std::function<void()> last = nullptr);
  void leave();  // the process ends: threads may wait for ranks that never come

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace crimp_torch
