// What completes or starts requests: MPI_Wait and MPI_Test in all their forms, MPI_Request_get_status (MPI 4.1's _any,
// _all and _some where our headers are MPI 4's), MPI_Start, MPI_Startall, MPI_Request_free.
//
// A request's work is taken out of the table before MPI is asked, because behind MPI's completion another thread may
// get the same handle for a new request; what is not complete is put back. An error handler of the program's may leave
// any call of MPI's by longjmp, behind which no destructor runs: so no call is made while a lock is held or something
// is known to the call's frame alone, and what a call leaves taken the thread's next one gives back.
//
// Where that call had several requests MPI may have completed some of ours before it raised another's error, and their
// handles be new requests'. So what is complete of ours has its result before a call that completes several.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "export.hpp"
#include "guard.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/mpi_wait.hpp"
#include "requests.hpp"

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
    Pending** last = &first_;
    for (int i = 0; requests && i < count; ++i)
      if (Pending* const p = Requests::get().take(requests[i], this)) {
        p->index = i;
        p->next = nullptr;
        *last = p;
        last = &p->next;
      }
  }
  // What was not finished is as it was. Where an error handler has thrown for another one of the requests, MPI may have
  // completed this one before: its handle is some other request's next.
  ~Taken() {
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
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  // MPI's call for request i alone.
  template <class Ask>
  int alone(int i, Ask ask) {
    Pending* const p = find(i);
    if (p) p->alone = true;
    const int rc = ask();
    if (p) p->alone = false;
    return rc;
  }
  // Request i is complete.
  int finish(int i, int rc) {
    Pending* const p = find(i);
    if (!p) return rc;
    settle(*p, rc);
    return answer(*p);
  }
  // All of `count` are, or of some MPI says otherwise.
  int finish_all(int rc, int count, MPI_Status* statuses) {
    Verdict verdict(rc, count, statuses);
    each([&](Pending& p) {
      const bool asked = rc == MPI_SUCCESS || rc == MPI_ERR_IN_STATUS;
      if (p.completed || !(requests_[p.index] == MPI_REQUEST_NULL || (asked && p.persistent()))) return;
      if (const int own = verdict.of_mpi(p.index); own != MPI_ERR_PENDING) settle(p, own);
    });
    each([&](Pending& p) {
      const int i = p.index;
      if (p.completed) verdict.add(i, verdict.of_mpi(i), answer(p));
    });
    return verdict.code();
  }
  // `count` are, whose indices are given.
  int finish_some(int rc, int count, const int* indices, MPI_Status* statuses) {
    Verdict verdict(rc, count, statuses);
    for (int i = 0; i < count; ++i)
      if (Pending* const p = find(indices[i])) settle(*p, verdict.of_mpi(i));
    for (int i = 0; i < count; ++i)
      if (Pending* const p = find(indices[i])) verdict.add(i, verdict.of_mpi(i), answer(*p));
    return verdict.code();
  }
  // What is complete has its result then. MPI's error of one, which Open MPI says only where it completes it, comes
  // with the call itself, and then what was made of it does not count. Whether all is complete.
  bool look(const NextMpi& next) {
    bool all = true;
    each([&](Pending& p) {
      if (p.finished) return;
      int flag = 0;
      if (next.Request_get_status(requests_[p.index], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      if (!flag) all = false;
      else Requests::get().finish(p, MPI_SUCCESS);
    });
    return all;
  }
  // Whether others stand beside ours, which MPI's own call is to move on: MPI-IO's move only while such a call has
  // them. MPICH 4.0 ends the job where persistent sums are tested that are not complete.
  bool has_others(int count) const {
    if (!first_) return false;  // nor need there be any requests
    std::ptrdiff_t ours = 0;
    for (const Pending* p = first_; p; p = p->next, ++ours)
      if (p->persistent()) return false;
    return count - std::count(requests_, requests_ + count, MPI_REQUEST_NULL) > ours;
  }
  int release() {
    Pending* const p = find(0);
    const int rc = p ? p->release() : MPI_SUCCESS;
    if (rc == MPI_SUCCESS) return rc;
    const auto failure = p->take_failure();
    unlink(*p);
    Requests::get().put(*p);
    return failure ? failure->raise() : rc;
  }
  // MPI has freed the request. What it still goes on with keeps its buffers: nobody will say when it ends.
  void freed() {
    Pending* const p = find(0);
    if (!p) return;
    unlink(*p);
    if (!p->finished) static_cast<void>(p->entry.mapped().release());
    Requests::get().end(*p);
  }
  // Until MPI has started them they are inactive, of which it says that they are complete.
  int start() {
    int rc = MPI_SUCCESS;
    each([&](Pending& p) {
      if (rc != MPI_SUCCESS) return;
      if (const auto of_before = p.take_failure()) of_before->say();  // left by a handler that did not return
      rc = p.start();
      if (const auto failure = p.take_failure()) rc = failure->raise();
    });
    return rc;
  }
  int started(int rc) {
    // A request may be another one when it has been started.
    each([&](Pending& p) {
      p.entry.key() = requests_[p.index];
      p.finished = rc != MPI_SUCCESS;
    });
    return rc;
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
  Pending* find(int i) const {
    Pending* p = first_;
    while (p && p->index != i) p = p->next;
    return p;
  }
  void unlink(Pending& p) {
    Pending** link = &first_;
    while (*link != &p) link = &(*link)->next;
    *link = p.next;
  }
  static void settle(Pending& p, int rc) {
    p.code = Requests::get().finish(p, rc);
    if (rc != MPI_SUCCESS && p.code == rc) p.failure.reset();  // MPI's word has raised itself
    p.completed = true;
  }
  // Of one that is settled: the code to hand back, raised where the failure is ours.
  int answer(Pending& p) {
    const auto failure = p.take_failure();
    const int code = p.code;
    if (!p.persistent()) {
      unlink(p);
      Requests::get().end(p);
    }
    return failure ? failure->raise() : code;
  }
  const MPI_Request* requests_;
  Pending* first_ = nullptr;
};

bool straight(const NextMpi& next) {
  if (__builtin_expect(!Requests::any(), 1) || inside(next)) return true;
  go_on();
  Requests::get().reclaim();
  return false;
}

int wait(const NextMpi& next, MPI_Request* request, MPI_Status* status) {
  if (straight(next)) return next.Wait(request, status);
  Taken taken(request, 1);
  return taken.finish(0, taken.alone(0, [&] { return next.Wait(request, status); }));
}

int waitall(const NextMpi& next, int count, MPI_Request* requests, MPI_Status* statuses) {
  if (straight(next)) return next.Waitall(count, requests, statuses);
  Taken taken(requests, count);
  // Not MPI_Wait for each of ours, which leaves MPI_REQUEST_NULL: MPICH 4.0 ends the job in MPI_Waitall over that and a
  // generalized request.
  constexpr int kShort = 64;
  const bool others = taken.has_others(count);
  Sleeps sleeps;
  for (int turn = 0; !taken.look(next); ++turn) {
    int flag = 0;
    const int rc = others ? next.Testall(count, requests, &flag, statuses) : MPI_SUCCESS;
    if (flag || rc != MPI_SUCCESS) return taken.finish_all(rc, count, statuses);
    if (turn > kShort && many_threads()) sleeps.sleep();  // others would spin beside this one
  }
  return taken.finish_all(next.Waitall(count, requests, statuses), count, statuses);
}

int waitany(const NextMpi& next, int count, MPI_Request* requests, int* index, MPI_Status* status) {
  if (straight(next)) return next.Waitany(count, requests, index, status);
  Taken taken(requests, count);
  if (index) *index = MPI_UNDEFINED;  // where MPI says nothing
  const int rc = next.Waitany(count, requests, index, status);
  return !index || *index == MPI_UNDEFINED ? rc : taken.finish(*index, rc);
}

int finish_some(Taken& taken, int rc, const int* done, const int* indices, MPI_Status* statuses) {
  return taken.finish_some(rc, done && *done != MPI_UNDEFINED ? *done : 0, indices, statuses);
}

int waitsome(const NextMpi& next, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  if (straight(next)) return next.Waitsome(count, requests, done, indices, statuses);
  Taken taken(requests, count);
  if (done) *done = MPI_UNDEFINED;
  taken.look(next);
  return finish_some(taken, next.Waitsome(count, requests, done, indices, statuses), done, indices, statuses);
}

int test(const NextMpi& next, MPI_Request* request, int* flag, MPI_Status* status) {
  if (straight(next) || !flag) return next.Test(request, flag, status);
  Taken taken(request, 1);
  *flag = 0;
  const int rc = taken.alone(0, [&] { return next.Test(request, flag, status); });
  return *flag ? taken.finish(0, rc) : rc;
}

int testall(const NextMpi& next, int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  if (straight(next) || !flag) return next.Testall(count, requests, flag, statuses);
  Taken taken(requests, count);
  *flag = 0;
  if (!taken.look(next) && !taken.has_others(count)) return MPI_SUCCESS;
  const int rc = next.Testall(count, requests, flag, statuses);
  return *flag ? taken.finish_all(rc, count, statuses) : rc;
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
  taken.look(next);
  return finish_some(taken, next.Testsome(count, requests, done, indices, statuses), done, indices, statuses);
}

// Several threads may ask of one request, other than of completing it. Who is told that it is complete may read the
// result.
int look(MPI_Request request, int rc) {
  std::optional<Failure> failure;
  rc = Requests::get().look(request, rc, failure);
  return failure ? failure->raise() : rc;
}

int request_get_status(const NextMpi& next, MPI_Request request, int* flag, MPI_Status* status) {
  if (straight(next)) return next.Request_get_status(request, flag, status);
  if (flag) *flag = 0;
  const int rc = next.Request_get_status(request, flag, status);
  return flag && *flag ? look(request, rc) : rc;
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
  if (flag) *flag = 0;
  int rc = ask();
  for (int i = 0; flag && *flag && i < count; ++i) {
    const int ours = look(requests[i], MPI_SUCCESS);
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
  if (flag) *flag = 0;
  if (index) *index = MPI_UNDEFINED;
  const int rc = ask();
  return flag && *flag && index && *index != MPI_UNDEFINED ? look(requests[*index], rc) : rc;
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
  if (done) *done = MPI_UNDEFINED;
  int rc = ask();
  for (int i = 0; done && *done != MPI_UNDEFINED && i < *done; ++i) {
    const int ours = look(requests[indices[i]], MPI_SUCCESS);
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
  const int rc = taken.start();
  return rc == MPI_SUCCESS ? taken.started(next.Start(request)) : rc;
}

int startall(const NextMpi& next, int count, MPI_Request* requests) {
  if (straight(next)) return next.Startall(count, requests);
  Taken taken(requests, count);
  const int rc = taken.start();
  return rc == MPI_SUCCESS ? taken.started(next.Startall(count, requests)) : rc;
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
