// What completes or starts requests: MPI_Wait and MPI_Test in all their forms, MPI_Request_get_status (MPI 4.1's _any,
// _all and _some where our headers are MPI 4's), MPI_Start, MPI_Startall, MPI_Request_free.
//
// A request's work is taken out of the table before MPI is asked, because behind MPI's completion another thread may
// get the same handle for a new request; what is not complete is put back.
#include "requests.hpp"

#include <cstddef>
#include <new>
#include <utility>

#include "export.hpp"
#include "guard.hpp"
#include "mpi/at_exit.hpp"

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

Requests::Entry Requests::take(MPI_Request request) noexcept {
  if (request == MPI_REQUEST_NULL) return {};
  std::lock_guard lock(mutex_);
  Entry entry = table_.extract(request);
  if (entry) ++taken_;
  return entry;
}

void Requests::put(Entry entry) noexcept {
  std::lock_guard lock(mutex_);
  --taken_;
  table_.insert(std::move(entry));
}

void Requests::end(Entry entry) noexcept {
  std::lock_guard lock(mutex_);
  --taken_;
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  static_cast<void>(entry);
}

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

// The work behind the requests of one call, while MPI has them.
class Taken {
 public:
  Taken(const MPI_Request* requests, int count) : requests_(requests) {
    go_on();
    Pending** last = &first_;
    for (int i = 0; requests && i < count; ++i)
      if (auto entry = Requests::get().take(requests[i])) {
        Pending& p = *entry.mapped();
        p.index = i;
        p.next = nullptr;
        p.entry = std::move(entry);
        *last = &p;
        last = &p.next;
      }
  }
  // What was not finished is as it was. Where an error handler has thrown for another one of the requests, MPI may have
  // completed this one before: its handle is some other request's next.
  ~Taken() {
    each([this](Pending& p) {
      if (p.persistent() || requests_[p.index] != MPI_REQUEST_NULL) return Requests::get().put(std::move(p.entry));
      if (!std::exchange(p.finished, true)) try {
          p.finish(MPI_SUCCESS);
        } catch (...) {  // one is on its way already
        }
      Requests::get().end(std::move(p.entry));
    });
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  // Request i is complete.
  int finish(int i, int rc) {
    each([&](Pending& p) {
      if (p.index == i) rc = finish(p, rc);
    });
    return rc;
  }
  // All of `count` are, or of some MPI says otherwise.
  int finish_all(int rc, int count, MPI_Status* statuses) {
    Verdict verdict(rc, count, statuses);
    each([&](Pending& p) {
      const bool asked = rc == MPI_SUCCESS || rc == MPI_ERR_IN_STATUS;
      if (!(requests_[p.index] == MPI_REQUEST_NULL || (asked && p.persistent()))) return;
      const int i = p.index, own = verdict.of_mpi(i);
      if (own != MPI_ERR_PENDING) verdict.add(i, own, finish(p, own));
    });
    return verdict.code();
  }
  // Request i is complete, but the program keeps it.
  int look(int i, int rc) {
    each([&](Pending& p) {
      if (p.index == i && !std::exchange(p.finished, true)) rc = p.finish(rc);
    });
    return rc;
  }
  int release() {
    int rc = MPI_SUCCESS;
    each([&](Pending& p) {
      if (rc == MPI_SUCCESS) rc = p.release();
    });
    return rc;
  }
  // MPI has freed the requests. What it still goes on with keeps its buffers: nobody will say when it ends.
  void freed() {
    each([](Pending& p) {
      Requests::Entry entry = std::move(p.entry);
      if (!p.finished) static_cast<void>(entry.mapped().release());
      Requests::get().end(std::move(entry));
    });
    first_ = nullptr;
  }
  // MPICH 4.0 ends the job in MPI_Waitall over generalized requests and MPI_REQUEST_NULL. All have to complete anyway.
  int wait_for_generalized(const NextMpi& next, MPI_Request* requests, MPI_Status* statuses) {
    int rc = MPI_SUCCESS;
    each([&](Pending& p) {
      if (rc == MPI_SUCCESS && p.generalized())
        rc = next.Wait(&requests[p.index], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[p.index]);
    });
    return rc;
  }
  int start() {
    int rc = MPI_SUCCESS;
    each([&](Pending& p) {
      if (rc == MPI_SUCCESS) rc = p.start();
    });
    return rc == MPI_SUCCESS ? rc : not_started(rc);
  }
  // MPI has started none of them, and says of inactive requests that they are complete.
  int not_started(int rc) {
    each([](Pending& p) { p.finished = true; });
    return rc;
  }
  // A request may be another one when it has been started.
  void renew() {
    each([&](Pending& p) { p.entry.key() = requests_[p.index]; });
  }

 private:
  // use() may end the one it is given.
  template <class Use>
  void each(Use use) {
    for (Pending *p = first_, *behind; p; p = behind) {
      behind = p->next;
      use(*p);
    }
  }
  int finish(Pending& p, int rc) {
    if (!std::exchange(p.finished, true)) rc = p.finish(rc);
    if (p.persistent()) return rc;
    Pending** link = &first_;
    while (*link != &p) link = &(*link)->next;
    *link = p.next;
    Requests::get().end(std::move(p.entry));
    return rc;
  }
  const MPI_Request* requests_;
  Pending* first_ = nullptr;
};

bool straight(const NextMpi& next) { return __builtin_expect(!Requests::any(), 1) || inside(next); }

int wait(const NextMpi& next, MPI_Request* request, MPI_Status* status) {
  if (straight(next)) return next.Wait(request, status);
  Taken taken(request, 1);
  return taken.finish(0, next.Wait(request, status));
}

int waitall(const NextMpi& next, int count, MPI_Request* requests, MPI_Status* statuses) {
  if (straight(next)) return next.Waitall(count, requests, statuses);
  Taken taken(requests, count);
  int rc = taken.wait_for_generalized(next, requests, statuses);
  if (rc == MPI_SUCCESS) rc = next.Waitall(count, requests, statuses);
  return taken.finish_all(rc, count, statuses);
}

int waitany(const NextMpi& next, int count, MPI_Request* requests, int* index, MPI_Status* status) {
  if (straight(next)) return next.Waitany(count, requests, index, status);
  Taken taken(requests, count);
  if (index) *index = MPI_UNDEFINED;  // where MPI says nothing
  const int rc = next.Waitany(count, requests, index, status);
  return !index || *index == MPI_UNDEFINED ? rc : taken.finish(*index, rc);
}

int finish_some(Taken& taken, int rc, const int* done, const int* indices, MPI_Status* statuses) {
  const int count = done && *done != MPI_UNDEFINED ? *done : 0;
  Verdict verdict(rc, count, statuses);
  for (int i = 0; i < count; ++i) {
    const int own = verdict.of_mpi(i);
    verdict.add(i, own, taken.finish(indices[i], own));
  }
  return verdict.code();
}

int waitsome(const NextMpi& next, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  if (straight(next)) return next.Waitsome(count, requests, done, indices, statuses);
  Taken taken(requests, count);
  if (done) *done = MPI_UNDEFINED;
  return finish_some(taken, next.Waitsome(count, requests, done, indices, statuses), done, indices, statuses);
}

int test(const NextMpi& next, MPI_Request* request, int* flag, MPI_Status* status) {
  if (straight(next)) return next.Test(request, flag, status);
  Taken taken(request, 1);
  if (flag) *flag = 0;
  const int rc = next.Test(request, flag, status);
  return flag && *flag ? taken.finish(0, rc) : rc;
}

int testall(const NextMpi& next, int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  if (straight(next)) return next.Testall(count, requests, flag, statuses);
  Taken taken(requests, count);
  if (flag) *flag = 0;
  const int rc = next.Testall(count, requests, flag, statuses);
  return flag && *flag ? taken.finish_all(rc, count, statuses) : rc;
}

int testany(const NextMpi& next, int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  if (straight(next)) return next.Testany(count, requests, index, flag, status);
  Taken taken(requests, count);
  if (flag) *flag = 0;
  if (index) *index = MPI_UNDEFINED;
  const int rc = next.Testany(count, requests, index, flag, status);
  return flag && *flag && index && *index != MPI_UNDEFINED ? taken.finish(*index, rc) : rc;
}

int testsome(const NextMpi& next, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  if (straight(next)) return next.Testsome(count, requests, done, indices, statuses);
  Taken taken(requests, count);
  if (done) *done = MPI_UNDEFINED;
  return finish_some(taken, next.Testsome(count, requests, done, indices, statuses), done, indices, statuses);
}

// Several threads may ask of one request, other than of completing it. Who is told that it is complete may read the
// result, so that all wait for the one that decodes it. An error handler of the program's may ask again.
std::unique_lock<std::recursive_mutex> one_looks() {
  alignas(std::recursive_mutex) static std::byte room[sizeof(std::recursive_mutex)];  // used until the very end
  static auto& looking = *new (room) std::recursive_mutex;
  return std::unique_lock(looking);
}

int request_get_status(const NextMpi& next, MPI_Request request, int* flag, MPI_Status* status) {
  if (straight(next)) return next.Request_get_status(request, flag, status);
  const auto lock = one_looks();
  Taken taken(&request, 1);
  if (flag) *flag = 0;
  const int rc = next.Request_get_status(request, flag, status);
  return flag && *flag ? taken.look(0, rc) : rc;
}

#if MPI_VERSION >= 4
// Over an MPI that lacks these, MPI_Request_get_status of each does their work: a caller that finds them takes them. It
// does not tell an inactive persistent request from a complete one.
int request_get_status_all(const NextMpi& next, int count, const MPI_Request* requests, int* flag,
                           MPI_Status* statuses) {
  const auto ask = [&] {
    if (next.Request_get_status_all) return next.Request_get_status_all(count, requests, flag, statuses);
    int all = 1, rc = MPI_SUCCESS;
    for (int i = 0; i < count && all && rc == MPI_SUCCESS; ++i)
      rc = next.Request_get_status(requests[i], &all,
                                   statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i]);
    *flag = all;
    return rc;
  };
  if (straight(next)) return ask();
  const auto lock = one_looks();
  Taken taken(requests, count);
  if (flag) *flag = 0;
  int rc = ask();
  for (int i = 0; flag && *flag && i < count; ++i) {
    const int ours = taken.look(i, MPI_SUCCESS);
    if (ours != MPI_SUCCESS) rc = ours;
  }
  return rc;
}

int request_get_status_any(const NextMpi& next, int count, const MPI_Request* requests, int* index, int* flag,
                           MPI_Status* status) {
  const auto ask = [&]() -> int {
    if (next.Request_get_status_any) return next.Request_get_status_any(count, requests, index, flag, status);
    bool none = true;
    MPI_Status one;
    for (int i = 0; i < count; ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      none = false;
      int complete = 0;
      if (const int rc = next.Request_get_status(requests[i], &complete, &one)) return rc;
      if (!complete) continue;
      *flag = 1, *index = i;
      if (status != MPI_STATUS_IGNORE) *status = one;
      return MPI_SUCCESS;
    }
    *flag = none, *index = MPI_UNDEFINED;
    int unused;
    return none ? next.Request_get_status(MPI_REQUEST_NULL, &unused, status) : MPI_SUCCESS;
  };
  if (straight(next)) return ask();
  const auto lock = one_looks();
  Taken taken(requests, count);
  if (flag) *flag = 0;
  if (index) *index = MPI_UNDEFINED;
  const int rc = ask();
  return flag && *flag && index && *index != MPI_UNDEFINED ? taken.look(*index, rc) : rc;
}

int request_get_status_some(const NextMpi& next, int count, const MPI_Request* requests, int* done, int* indices,
                            MPI_Status* statuses) {
  const auto ask = [&]() -> int {
    if (next.Request_get_status_some) return next.Request_get_status_some(count, requests, done, indices, statuses);
    bool none = true;
    int found = 0;
    MPI_Status one;
    for (int i = 0; i < count; ++i) {
      if (requests[i] == MPI_REQUEST_NULL) continue;
      none = false;
      int complete = 0;
      if (const int rc = next.Request_get_status(requests[i], &complete, &one)) return rc;
      if (!complete) continue;
      if (statuses != MPI_STATUSES_IGNORE) statuses[found] = one;
      indices[found++] = i;
    }
    *done = none ? MPI_UNDEFINED : found;
    return MPI_SUCCESS;
  };
  if (straight(next)) return ask();
  const auto lock = one_looks();
  Taken taken(requests, count);
  if (done) *done = MPI_UNDEFINED;
  int rc = ask();
  for (int i = 0; done && *done != MPI_UNDEFINED && i < *done; ++i) {
    const int ours = taken.look(indices[i], MPI_SUCCESS);
    if (ours != MPI_SUCCESS) rc = ours;
  }
  return rc;
}
#endif

int request_free(const NextMpi& next, MPI_Request* request) {
  if (straight(next)) return next.Request_free(request);
  Taken taken(request, 1);
  int rc = taken.release();
  if (rc == MPI_SUCCESS && (rc = next.Request_free(request)) == MPI_SUCCESS) taken.freed();
  return rc;
}

int start(const NextMpi& next, MPI_Request* request) {
  if (straight(next)) return next.Start(request);
  Taken taken(request, 1);
  int rc = taken.start();
  if (rc == MPI_SUCCESS && (rc = next.Start(request)) != MPI_SUCCESS) taken.not_started(rc);
  taken.renew();
  return rc;
}

int startall(const NextMpi& next, int count, MPI_Request* requests) {
  if (straight(next)) return next.Startall(count, requests);
  Taken taken(requests, count);
  int rc = taken.start();
  if (rc == MPI_SUCCESS && (rc = next.Startall(count, requests)) != MPI_SUCCESS) taken.not_started(rc);
  taken.renew();
  return rc;
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Wait, wait, (MPI_Request * request, MPI_Status* status), request, status)
CRIMP_EXPORT(Waitall, waitall, (int count, MPI_Request requests[], MPI_Status statuses[]), count, requests, statuses)
CRIMP_EXPORT(Waitany, waitany, (int count, MPI_Request requests[], int* index, MPI_Status* status), count, requests,
             index, status)
CRIMP_EXPORT(Waitsome, waitsome, (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
             count, requests, done, indices, statuses)
CRIMP_EXPORT(Test, test, (MPI_Request * request, int* flag, MPI_Status* status), request, flag, status)
CRIMP_EXPORT(Testall, testall, (int count, MPI_Request requests[], int* flag, MPI_Status statuses[]), count, requests,
             flag, statuses)
CRIMP_EXPORT(Testany, testany, (int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status), count,
             requests, index, flag, status)
CRIMP_EXPORT(Testsome, testsome, (int count, MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]),
             count, requests, done, indices, statuses)
CRIMP_EXPORT(Request_get_status, request_get_status, (MPI_Request request, int* flag, MPI_Status* status), request,
             flag, status)
#if MPI_VERSION >= 4
CRIMP_EXPORT(Request_get_status_all, request_get_status_all,
             (int count, const MPI_Request requests[], int* flag, MPI_Status statuses[]), count, requests, flag,
             statuses)
CRIMP_EXPORT(Request_get_status_any, request_get_status_any,
             (int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status), count, requests,
             index, flag, status)
CRIMP_EXPORT(Request_get_status_some, request_get_status_some,
             (int count, const MPI_Request requests[], int* done, int indices[], MPI_Status statuses[]), count,
             requests, done, indices, statuses)
#endif
CRIMP_EXPORT(Request_free, request_free, (MPI_Request * request), request)
CRIMP_EXPORT(Start, start, (MPI_Request * request), request)
CRIMP_EXPORT(Startall, startall, (int count, MPI_Request requests[]), count, requests)
