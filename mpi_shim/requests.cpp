#include "requests.hpp"

#include <utility>

namespace crimp {

constinit std::atomic<int> Requests::outstanding_{0};

Requests& Requests::get() {
  static auto& requests = *new Requests;
  return requests;
}

Requests::Room::Room() {
  Table one;
  one.try_emplace(MPI_REQUEST_NULL);
  Requests& all = Requests::get();
  std::lock_guard lock(all.mutex_);
  all.table_.reserve(all.table_.size() + all.taken_ + 1);
  ++all.taken_;
  entry_ = one.extract(one.begin());
}

Requests::Room::~Room() {
  if (!entry_) return;
  std::lock_guard lock(Requests::get().mutex_);
  --Requests::get().taken_;
}

void Requests::Room::fill(MPI_Request request, std::unique_ptr<Pending> pending) noexcept {
  entry_.key() = request;
  entry_.mapped() = std::move(pending);
  Requests& all = Requests::get();
  std::lock_guard lock(all.mutex_);
  --all.taken_;
  // One of this handle was completed where we did not see it, or MPI would not have given it again.
  if (all.table_.erase(request) == 0) outstanding_.fetch_add(1, std::memory_order_relaxed);
  all.table_.insert(std::move(entry_));
}

Requests::Table::iterator Requests::find(MPI_Request request, std::unique_lock<std::mutex>& lock) {
  auto found = table_.end();
  while ((found = table_.find(request)) != table_.end() && found->second->looking) looked_.wait(lock);
  return found;
}

Pending* Requests::take(MPI_Request request, const void* frame) noexcept {
  if (request == MPI_REQUEST_NULL) return nullptr;
  std::unique_lock lock(mutex_);
  const auto found = find(request, lock);
  if (found == table_.end()) return nullptr;
  Pending& p = *found->second;
  p.entry = table_.extract(found);
  ++taken_;
  p.completed = p.alone = false;
  p.thread = &mark, p.frame = frame;
  p.before = nullptr, p.behind = in_calls_;
  if (in_calls_) in_calls_->before = &p;
  in_calls_ = &p;
  return &p;
}

void Requests::unlink(Pending& p) noexcept {
  --taken_;
  (p.before ? p.before->behind : in_calls_) = p.behind;
  if (p.behind) p.behind->before = p.before;
}

void Requests::put(Pending& p) noexcept {
  Table::insert_return_type put;  // another one's of this handle: as in Room::fill()
  std::lock_guard lock(mutex_);
  unlink(p);
  put = table_.insert(std::move(p.entry));
  if (!put.inserted) outstanding_.fetch_sub(1, std::memory_order_relaxed);
}

void Requests::started(Pending& p, MPI_Request request) noexcept {
  std::lock_guard lock(mutex_);
  p.entry.key() = request;
  p.finished = false;
  p.started();
}

void Requests::freed(MPI_Comm comm) noexcept {
  std::lock_guard lock(mutex_);
  for (auto& [request, pending] : table_) pending->freed(comm);
  for (Pending* p = in_calls_; p; p = p->behind) p->freed(comm);
}

void Requests::end(Pending& p) noexcept {
  Entry entry;
  {
    std::unique_lock lock(mutex_);
    while (p.looking) looked_.wait(lock);
    entry = std::move(p.entry);
    unlink(p);
    outstanding_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (p.failure) p.failure->say();
}

void Requests::reclaim() noexcept {
  Pending* left = nullptr;
  {
    std::lock_guard lock(mutex_);
    const void* asked = nullptr;
    bool gone = false;
    for (Pending* p = in_calls_; p; p = p->behind) {
      if (p->thread != &mark) continue;
      if (p->frame != asked) gone = is_left(asked = p->frame);
      if (gone) p->next = left, left = p;
    }
  }
  for (Pending *p = left, *next; p; p = next) {
    next = p->next;
    if (p->persistent() || !(p->finished || p->alone)) put(*p);
    else end(*p);
  }
}

int Requests::finish(Pending& p, int rc) {
  std::unique_lock lock(mutex_);
  while (p.looking) looked_.wait(lock);
  return finish(p, rc, lock);
}

int Requests::finish(Pending& p, int rc, std::unique_lock<std::mutex>& lock) {
  if (p.finished.exchange(true)) return rc;
  struct Looking {
    Looking(Requests& requests, std::unique_lock<std::mutex>& of_all, Pending& pending)
        : all(requests), held(of_all), of(pending) {
      of.looking = true;
      held.unlock();
    }
    ~Looking() {
      held.lock();
      of.looking = false;
      all.looked_.notify_all();
    }
    Requests& all;
    std::unique_lock<std::mutex>& held;
    Pending& of;
  } const looking(*this, lock, p);
  return p.finish(rc);
}

Pending* Requests::find_taken(MPI_Request request) const {
  Pending* p = in_calls_;
  while (p && p->entry.key() != request) p = p->behind;
  return p;
}

int Requests::look(MPI_Request request, int rc, std::optional<Failure>& failure) {
  std::unique_lock lock(mutex_);
  if (const auto found = find(request, lock); found != table_.end()) {
    Pending& p = *found->second;
    rc = finish(p, rc, lock);
    if ((failure = p.take_failure())) {  // who completes it is told, too
      p.failure = failure;
      p.failure->again = true;
    }
    return rc;
  }
  // In the hands of another thread's call, which completes others with it and answers for its failure.
  Pending* p = nullptr;
  while ((p = find_taken(request)) && p->looking) looked_.wait(lock);
  return p ? finish(*p, rc, lock) : rc;
}

}  // namespace crimp
