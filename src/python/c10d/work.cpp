#include "work.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "mpi_process.hpp"

namespace crimp_torch {

HostTensor::HostTensor(at::Tensor tensor, c10::optional<at::ScalarType> type) : tensor_(std::move(tensor)) {
  const at::NoGradGuard no_gradients;
  TORCH_CHECK(tensor_.layout() == at::kStrided, "crimp: sparse tensors are not supported");
  host_ = tensor_;
  if (!host_.device().is_cpu()) host_ = host_.cpu();
  if (type && *type != host_.scalar_type()) host_ = host_.to(*type);
  host_ = host_.contiguous();
}

void HostTensor::give_back() {
  if (host_.is_same(tensor_)) return;
  const at::NoGradGuard no_gradients;
  tensor_.copy_(host_);
}

QueuedWork::QueuedWork(c10d::OpType type, const char* title, std::vector<at::Tensor> outputs,
                       std::function<void()> task)
    : Work(-1, type, title, c10::nullopt), outputs_(std::move(outputs)), task_(std::move(task)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void QueuedWork::run() noexcept {
  std::exception_ptr failure;
  try {
    task_();
  } catch (...) {
    failure = std::current_exception();
  }
  task_ = nullptr;
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  finish(failure);
}

MessageWork::MessageWork(c10d::OpType type, const char* title, HostTensor tensor)
    : Work(-1, type, title, c10::nullopt), tensor_(std::move(tensor)) {}

MessageWork::~MessageWork() {
  if (request_ != MPI_REQUEST_NULL) new HostTensor(tensor_);  // MPI still reads or writes there
}

bool MessageWork::isCompleted() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (completed_) return true;
  int done = 0;
  MPI_Status status;
  try {
    const auto turn = mpi_turn();
    check_mpi(MPI_Test(&request_, &done, &status), "MPI_Test");
    if (!done) return false;
    source_ = status.MPI_SOURCE;
    tensor_.give_back();
  } catch (...) {
    exception_ = std::current_exception();
  }
  completed_ = true;
  return true;
}

bool MessageWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return completed_ && !exception_;
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  while (!isCompleted()) {
    TORCH_CHECK(timeout.count() <= 0 || std::chrono::steady_clock::now() - start < timeout,
                "crimp: a message was not through after ", timeout.count(), " ms");
    std::this_thread::yield();
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

struct WorkQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<c10::intrusive_ptr<QueuedWork>> works;
  bool ends = false;

  void serve() {
    for (std::unique_lock lock(mutex);;) {
      changed.wait(lock, [&] { return ends || !works.empty(); });
      if (works.empty()) return;
      auto work = std::move(works.front());
      works.pop_front();
      lock.unlock();
      work->run();
      work.reset();
      lock.lock();
    }
  }
};

WorkQueue::WorkQueue() : state_(std::make_shared<State>()), thread_([state = state_] { state->serve(); }) {}

WorkQueue::~WorkQueue() { finish(); }

void WorkQueue::put(c10::intrusive_ptr<QueuedWork> work) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    TORCH_CHECK(!state_->ends, "crimp: this process group has ended");
    state_->works.push_back(std::move(work));
  }
  state_->changed.notify_one();
}

void WorkQueue::finish() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_one();
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::leave() {
  if (thread_.joinable()) thread_.detach();
}

}  // namespace crimp_torch
