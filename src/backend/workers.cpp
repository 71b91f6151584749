#include "backend/workers.hpp"

#include <csignal>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

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

  void loop(int part, int parts) {
    unsigned seen = 0;
    for (;;) {
      const std::function<void(int, int)>* work;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
        work = body;
      }
      (*work)(part, parts);
      std::lock_guard lock(mutex);
      if (--pending == 0) done.notify_one();
    }
  }
};

Workers::Workers(int threads) : threads_(threads < 1 ? 1 : threads) {
  if (threads_ == 1) return;
  pool_ = std::make_unique<Pool>();
  // The host program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int part = 1; part < threads_; ++part) pool_->threads.emplace_back([this, part] { pool_->loop(part, threads_); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    pool_->pending = threads_ - 1;
    ++pool_->generation;
  }
  pool_->wake.notify_all();
  body(0, threads_);
  std::unique_lock lock(pool_->mutex);
  pool_->done.wait(lock, [&] { return pool_->pending == 0; });
}

}  // namespace crimp
