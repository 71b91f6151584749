#include "taken.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "guard.hpp"

namespace crimp {
namespace {

// What a call that completes several requests answers. With statuses, MPI-3.1, 3.7.5: MPI_ERR_IN_STATUS, and each of
// them has an error of its own, which MPI writes only where it knows of one. Without, the code says what happened.
class Verdict {
 public:
  Verdict(int of_mpi, int count, MPI_Status* statuses) : of_mpi_(of_mpi), code_(of_mpi), count_(count) {
    if (statuses != MPI_STATUSES_IGNORE) statuses_ = statuses;
  }
  // Of the request of status i.
  int of_mpi(int i) const {
    return of_mpi_ != MPI_ERR_IN_STATUS ? of_mpi_ : statuses_ ? statuses_[i].MPI_ERROR : MPI_ERR_IN_STATUS;
  }
  // Where the code alone says that some have failed, ours say it themselves.
  bool knows(int i) const { return of_mpi(i) != MPI_ERR_IN_STATUS; }
  int of_ours(int i) const { return knows(i) ? of_mpi(i) : MPI_SUCCESS; }
  void add(int i, int own, int ours) {
    if (ours == own) return;
    if (statuses_ && code_ == MPI_SUCCESS)
      for (int other = 0; other < count_; ++other) statuses_[other].MPI_ERROR = MPI_SUCCESS;
    if (statuses_) statuses_[i].MPI_ERROR = ours;
    if (code_ == MPI_SUCCESS) code_ = statuses_ ? MPI_ERR_IN_STATUS : ours;
  }
  int code() const { return code_; }

 private:
  int of_mpi_, code_, count_;
  MPI_Status* statuses_ = nullptr;
};

void settle(Pending& p, int rc) {
  p.code = Requests::get().finish(p, rc);
  if (rc != MPI_SUCCESS && p.code == rc) p.failure.reset();  // MPI's word has raised itself
  p.completed = true;
}

}  // namespace

Taken::Taken(const MPI_Request* requests, int count) : requests_(requests) {
  Pending** last = &first_;
  for (int i = 0; requests && i < count; ++i)
    if (Pending* const p = Requests::get().take(requests[i], this)) {
      p->index = i;
      p->next = nullptr;
      *last = p;
      last = &p->next;
    }
}

Taken::~Taken() {
  each([this](Pending& p) {
    if (p.persistent() || requests_[p.index] != MPI_REQUEST_NULL) return Requests::get().put(p);
    try {
      if (!p.alone) settle(p, MPI_SUCCESS);
      if (const auto failure = p.take_failure()) failure->raise();
    } catch (...) {  // one is on its way already
    }
    Requests::get().end(p);
  });
}

int Taken::finish(int i, int rc) {
  Pending* const p = find(i);
  if (!p || (rc != MPI_SUCCESS && goes_on(*p))) return rc;
  settle(*p, rc);
  return answer(*p);
}

int Taken::finish_all(int rc, int count, MPI_Status* statuses) {
  Verdict verdict(rc, count, statuses);
  each([&](Pending& p) {
    const bool asked = (rc == MPI_SUCCESS || rc == MPI_ERR_IN_STATUS) && (verdict.knows(p.index) || p.finished);
    if (p.completed || !(requests_[p.index] == MPI_REQUEST_NULL || (asked && p.persistent()))) return;
    if (const int own = verdict.of_ours(p.index); own != MPI_ERR_PENDING) settle(p, own);
  });
  each([&](Pending& p) {
    const int i = p.index;
    if (p.completed) verdict.add(i, verdict.of_mpi(i), answer(p));
  });
  return verdict.code();
}

int Taken::finish_some(int rc, int count, const int* indices, MPI_Status* statuses) {
  Verdict verdict(rc, count, statuses);
  for (int i = 0; i < count; ++i)
    if (Pending* const p = find(indices[i])) settle(*p, verdict.of_ours(i));
  for (int i = 0; i < count; ++i)
    if (Pending* const p = find(indices[i])) verdict.add(i, verdict.of_mpi(i), answer(*p));
  return verdict.code();
}

bool Taken::look() {
  bool all = true;
  each([&](Pending& p) {
    if (p.finished) return;
    int flag = 0;
    if (next_pmpi().Request_get_status(requests_[p.index], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (!flag) all = false;
    else Requests::get().finish(p, MPI_SUCCESS);
  });
  return all;
}

void Taken::tell(StallWatch& watch, const char* function) noexcept {
  const Pending* p = first_;
  while (p && p->finished) p = p->next;
  if (std::exchange(told_, p) != p) watch = StallWatch();  // the wait for one is over
  while (p && (p->finished || !p->look(watch, function))) p = p->next;
}

bool Taken::has_others(int count) const {
  if (!first_) return false;  // nor need there be any requests
  std::ptrdiff_t ours = 0;
  for (const Pending* p = first_; p; p = p->next) ++ours;
  return count - std::count(requests_, requests_ + count, MPI_REQUEST_NULL) > ours;
}

bool Taken::has_persistent() const {
  const Pending* p = first_;
  while (p && !p->persistent()) p = p->next;
  return p;
}

bool Taken::has_finished() const {
  const Pending* p = first_;
  while (p && !p->finished) p = p->next;
  return p;
}

int Taken::release() {
  Pending* const p = find(0);
  const int rc = p ? p->release() : MPI_SUCCESS;
  if (rc == MPI_SUCCESS) return rc;
  const auto failure = p->take_failure();
  unlink(*p);
  Requests::get().put(*p);
  return failure ? failure->raise() : rc;
}

void Taken::freed() {
  Pending* const p = find(0);
  if (!p) return;
  unlink(*p);
  if (!p->finished) static_cast<void>(p->entry.mapped().release());
  Requests::get().end(*p);
}

bool Taken::has(MPI_Request request) const {
  const Pending* p = first_;
  while (p && requests_[p->index] != request) p = p->next;
  return p;
}

int Taken::prepare(Pending& p) {
  if (const auto of_before = p.take_failure()) of_before->say();  // left by a handler that did not return
  const int rc = p.start();
  const auto failure = p.take_failure();
  return failure ? failure->raise() : rc;
}

bool Taken::goes_on(const Pending& p) const {
  if (!p.persistent()) return requests_[p.index] != MPI_REQUEST_NULL;
  int complete = 0;
  return next_pmpi().Request_get_status(requests_[p.index], &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && !complete;
}

void Taken::unlink(Pending& p) {
  Pending** link = &first_;
  while (*link != &p) link = &(*link)->next;
  *link = p.next;
}

int Taken::answer(Pending& p) {
  const auto failure = p.take_failure();
  const int code = p.code;
  if (!p.persistent()) {
    unlink(p);
    Requests::get().end(p);
  }
  return failure ? failure->raise() : code;
}

}  // namespace crimp
