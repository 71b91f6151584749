#include "memory/workers.hpp"

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/blocked_signals.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {

struct Workers::Pool {
  std::mutex entry;  // held by the thread inside run()
  std::mutex mutex;
  std::condition_variable wake, done;
  const std::function<void(int, int)>* body = nullptr;
  unsigned generation = 0;
  int pending = 0;
  bool stop = false;
  std::vector<std::thread> threads;

  enum class Start { under_way, ready, failed } last_start = Start::under_way;
  int parts = 1;

  void loop(int part) {
    const FloatEnvironment environment;  // not that of the program's thread, which this one begins with
    std::unique_lock lock(mutex);
    unsigned seen = generation;
    try {
      thread_scratch();
      last_start = Start::ready;
    } catch (const std::exception&) {
      last_start = Start::failed;
    }
    done.notify_one();
    if (last_start == Start::failed) return;
    for (;;) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      const auto& work = *body;
      const int all = parts;
      lock.unlock();
      work(part, all);
      lock.lock();
      if (--pending == 0) done.notify_one();
    }
  }

  // Throws what keeps the thread from starting.
  void start(int part) {
    if (fault::fires("thread")) throw std::system_error(EAGAIN, std::generic_category());
    last_start = Start::under_way;
    threads.emplace_back([this, part] { loop(part); });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return last_start != Start::under_way; });
    if (last_start == Start::ready) return;
    lock.unlock();
    threads.back().join();
    threads.pop_back();
    throw Error(ErrorCode::out_of_memory, "no memory for a thread's scratch");
  }
};

Workers::Workers(int threads) {
  if (threads < 2) return;
  const BlockedSignals blocked;
  try {
    pool_ = std::make_unique<Pool>();
    for (; threads_ < threads; ++threads_) pool_->start(threads_);
  } catch (const std::exception& e) {  // of system_error, Error or bad_alloc: with fewer threads results are the same
    if (threads_ == 1) pool_.reset();
    try {
      log(LogLevel::warn, std::string("CRIMP_THREADS is ") + std::to_string(threads) + ", but only " +
                              std::to_string(threads_) + (threads_ == 1 ? " is" : " are") +
                              " used: another one could not be started (" + e.what() + ")");
    } catch (const std::exception&) {
    }
  }
}

Workers::~Workers() {
  if (!pool_) return;
  {
    std::lock_guard lock(pool_->mutex);
    pool_->stop = true;
  }
  pool_->wake.notify_all();
  for (auto& t : pool_->threads) t.join();
}

void Workers::run(const std::function<void(int, int)>& body) {
  std::unique_lock<std::mutex> entry;
  if (pool_) entry = std::unique_lock(pool_->entry, std::try_to_lock);
  if (!entry.owns_lock()) {
    for (int part = 0; part < threads_; ++part) body(part, threads_);
    return;
  }
  {
    std::lock_guard lock(pool_->mutex);
    pool_->body = &body;
    pool_->parts = threads_;
    pool_->pending = threads_ - 1;
    ++pool_->generation;
  }
  pool_->wake.notify_all();
  // What the caller's own part throws leaves when the others no longer run `body`.
  struct Join {
    Pool& pool;
    ~Join() {
      std::unique_lock lock(pool.mutex);
      pool.done.wait(lock, [&] { return pool.pending == 0; });
    }
  } const join{*pool_};
  body(0, threads_);
}

}  // namespace crimp
