#include "work.hpp"

#include <c10/core/InferenceMode.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "mpi_process.hpp"

namespace crimp_torch {
namespace {
thread_local std::uint64_t current_chain = 0;  // 0: none
}

std::uint64_t enter_chain() {
  static std::atomic<std::uint64_t> made{0};
  const std::uint64_t before = current_chain;
  if (before == 0) current_chain = ++made;
  return before;
}

void leave_chain(std::uint64_t before) { current_chain = before; }

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
      inference_(c10::InferenceMode::is_enabled()), chain_(current_chain),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void QueuedWork::run() noexcept {
  try {
    const c10::InferenceMode mode(inference_);
    task_();
    task_ = nullptr;
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void QueuedWork::complete() noexcept {
  task_ = nullptr;
  current_chain = chain_;
  if (failure_) {
    future_->setError(failure_);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
  finish(failure_);
  current_chain = 0;
}

MessageWork::MessageWork(c10d::OpType type, const char* title, HostTensor tensor, std::chrono::milliseconds timeout)
    : Work(-1, type, title, c10::nullopt), tensor_(std::move(tensor)), timeout_(timeout), process_(getpid()) {}

MessageWork::~MessageWork() {
  if (request_ != MPI_REQUEST_NULL && !give_up()) new HostTensor(tensor_);  // MPI still reads or writes there
}

// Waits for nothing: Python's lock may be held, and a message that is being received comes when its sender is in MPI.
bool MessageWork::give_up() noexcept {
  if (opType_ == c10d::OpType::SEND || getpid() != process_) return false;
  int done = 0;
  const auto turn = try_mpi_turn();
  return turn && MPI_Cancel(&request_) == MPI_SUCCESS && MPI_Test(&request_, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
         done;
}

bool MessageWork::isCompleted() {
  const bool through = progress();
  if (!through) check_runs();
  return through;
}

bool MessageWork::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (completed_) return true;
  int done = 0;
  MPI_Status status;
  try {
    const auto turn = try_mpi_turn();
    if (!turn) return false;
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
  if (timeout.count() <= 0) timeout = timeout_;
  // Where MPI ends meanwhile the message does not come, and the thread stays: Python, which is about to end, ends
  // threads that come back to it in the middle of what may not throw.
  for (bool through = isCompleted(); !through; through = progress()) {
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
  std::vector<std::thread> threads;
  const pid_t process = getpid();
  int idle = 0, telling = 0;  // threads that wait for work, and that tell of one that is done
  bool serving = false, ends = false, left = false;
  std::uint64_t chain = 0;  // of the work that was taken last
  int under_way = 0;        // of a chain: its works that were taken, and are not told of
  std::function<void()> last;

  // The end where all must wait for the chain. Once no more can be put they need not.
  auto next() {
    if (chain == 0) return works.begin();
    const auto own = std::find_if(works.begin(), works.end(), [&](const auto& one) { return one->chain() == chain; });
    return own != works.end() || (under_way > 0 && !ends) ? own : works.begin();
  }

  c10::intrusive_ptr<QueuedWork> take() {
    const auto place = next();
    auto work = std::move(*place);
    works.erase(place);
    if (work->chain() != chain) under_way = 0;
    chain = work->chain();
    ++under_way;
    return work;
  }

  static void start(const std::shared_ptr<State>& state) {
    state->threads.emplace_back([state] { serve(state); });
  }

  // Where no thread can be had, whoever waits for a later work in what is chained to this one does so in vain.
  static void stand_by(const std::shared_ptr<State>& state) noexcept {
    try {
      start(state);
    } catch (const std::exception&) {
    }
  }

  static void serve(const std::shared_ptr<State>& state) {
    State& s = *state;
    for (std::unique_lock lock(s.mutex);;) {
      ++s.idle;
      s.changed.wait(lock, [&] { return !s.serving && (s.ends || s.next() != s.works.end()); });
      --s.idle;
      if (s.works.empty()) {
        const auto last = std::exchange(s.last, nullptr);
        lock.unlock();
        if (last) last();
        return;
      }
      s.serving = true;
      auto work = s.take();
      lock.unlock();
      work->run();
      lock.lock();
      s.serving = false;
      // The interpreter ends, and may have ended: nobody is told any more.
      s.changed.wait(lock, [&] { return !s.left; });
      if (s.idle == 0 && (!s.ends || !s.works.empty())) stand_by(state);
      ++s.telling;
      lock.unlock();
      s.changed.notify_all();
      work->complete();
      const std::uint64_t chain = work->chain();
      work.reset();
      lock.lock();
      --s.telling;
      if (chain == s.chain) --s.under_way;
      s.changed.notify_all();
    }
  }
};

WorkQueue::WorkQueue() : state_(std::make_shared<State>()) { State::start(state_); }

WorkQueue::~WorkQueue() { finish(); }

void WorkQueue::put(c10::intrusive_ptr<QueuedWork> work) {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    TORCH_CHECK(!state_->ends, "crimp: this process group has ended");
    state_->works.push_back(std::move(work));
  }
  state_->changed.notify_all();
}

void WorkQueue::finish(std::function<void()> last) {
  if (getpid() != state_->process) {  // in a child of fork(), which has none of the threads
    static_cast<void>(new std::shared_ptr<State>(state_));
    return;
  }
  std::unique_lock lock(state_->mutex);
  if (!state_->ends && !state_->left) state_->last = std::move(last);
  state_->ends = true;
  state_->changed.notify_all();
  while (!state_->threads.empty()) {  // those that are joined may start others for what is still to run
    std::vector<std::thread> threads;
    threads.swap(state_->threads);
    lock.unlock();
    for (std::thread& one : threads)
      if (one.get_id() == std::this_thread::get_id()) one.detach();  // the last reference was in a callback
      else one.join();
    lock.lock();
  }
}

void WorkQueue::leave() {
  std::unique_lock lock(state_->mutex);
  state_->left = true;
  // Python ends threads that ask for its lock from here on, in the middle of what may not throw: those that tell an
  // error are nearly through, unless what they call waits for something.
  state_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state_->telling == 0; });
  for (std::thread& one : state_->threads) one.detach();
  state_->threads.clear();
}

}  // namespace crimp_torch
