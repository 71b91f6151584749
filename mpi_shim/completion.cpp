// What completes or starts requests: MPI_Wait and MPI_Test in all their forms, MPI_Request_get_status (MPI 4.1's _any,
// _all and _some where our headers are MPI 4's), MPI_Start, MPI_Startall, MPI_Request_free.
#include <algorithm>
#include <optional>

#include "export.hpp"
#include "guard.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/mpi_wait.hpp"
#include "requests.hpp"
#include "taken.hpp"

namespace crimp {
namespace {

bool straight(const NextMpi& next) {
  if (__builtin_expect(!Requests::any(), 1) || inside(next)) return true;
  go_on();
  Requests::get().reclaim();
  return false;
}

// MPI refuses a call with this status, where null is not MPI_STATUS_IGNORE, and the request stays.
bool refused(const MPI_Status* status) {
  const MPI_Status* const ignore = MPI_STATUS_IGNORE;
  return !status && ignore;
}

int wait(const NextMpi& next, MPI_Request* request, MPI_Status* status) {
  if (straight(next) || refused(status)) return next.Wait(request, status);
  Taken taken(request, 1);
  return taken.finish(0, taken.alone(0, [&] { return next.Wait(request, status); }));
}

// Turns of a loop that waits: behind the first each looks at how long it has (core/stall.hpp), behind the second it
// lets other threads have the core.
constexpr unsigned kUntimed = 4, kShort = 64;

// Open MPI's MPI_Waitall, where threads are in use, never returns over a request that had failed before (4.1.4).
bool hangs_over_failed() {
#ifdef OPEN_MPI
  return thread_level() >= MPI_THREAD_SERIALIZED;
#else
  return false;
#endif
}

int waitall(const NextMpi& next, int count, MPI_Request* requests, MPI_Status* statuses) {
  if (straight(next)) return next.Waitall(count, requests, statuses);
  Taken taken(requests, count);
  // Not MPI_Wait for each of ours, which leaves MPI_REQUEST_NULL: MPICH 4.0 ends the job in MPI_Waitall over that and a
  // generalized request. The others have a turn now and then only, because where MPI_Testall completes all a tool
  // behind us has seen none of it.
  constexpr unsigned kLooks = 8;
  const bool others = taken.has_others(count), testable = others && !taken.has_persistent();
  Sleeps sleeps;
  StallWatch watch;
  for (unsigned turn = 1;; ++turn) {
    if (turn > kUntimed) taken.tell(watch, "MPI_Waitall");
    const bool all = taken.look();
    if (all && !(others && hangs_over_failed())) break;       // those may have failed while ours was waited for
    const bool sleeps_now = turn > kShort && many_threads();  // others would spin beside this one
    if (all || (testable && (sleeps_now || turn % kLooks == 0))) {
      int flag = 0;
      const int rc = next_pmpi().Testall(count, requests, &flag, statuses);
      if (flag || rc != MPI_SUCCESS) {
        if (next.tool) next.Waitall(0, requests, statuses);  // what the program has called
        return taken.finish_all(rc, count, statuses);
      }
    }
    if (sleeps_now) sleeps.sleep();
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
  taken.look();
  // MPI's own wait may complete one of ours and raise another's error, whose handler leaves by longjmp: nobody knows of
  // ours then. Among threads MPI's lets all but one sleep.
  const bool looks = done && indices && !many_threads() && taken.has_others(count) && !taken.has_persistent();
  StallWatch watch;
  for (unsigned turn = 1; looks && !taken.has_finished(); taken.look(), ++turn) {
    if (turn > kUntimed) taken.tell(watch, "MPI_Waitsome");
    const int rc = next_pmpi().Testsome(count, requests, done, indices, statuses);
    if (rc == MPI_SUCCESS && *done == 0) continue;
    int none = 0;
    if (next.tool) next.Waitsome(0, requests, &none, &none, statuses);  // what the program has called
    return finish_some(taken, rc, done, indices, statuses);
  }
  return finish_some(taken, next.Waitsome(count, requests, done, indices, statuses), done, indices, statuses);
}

int test(const NextMpi& next, MPI_Request* request, int* flag, MPI_Status* status) {
  if (straight(next) || !flag || refused(status)) return next.Test(request, flag, status);
  Taken taken(request, 1);
  *flag = 0;
  const int rc = taken.alone(0, [&] { return next.Test(request, flag, status); });
  return *flag ? taken.finish(0, rc) : rc;
}

int testall(const NextMpi& next, int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  if (straight(next) || !flag) return next.Testall(count, requests, flag, statuses);
  Taken taken(requests, count);
  *flag = 0;
  if (!taken.look() && (taken.has_persistent() || !taken.has_others(count))) return MPI_SUCCESS;
  const int rc = next.Testall(count, requests, flag, statuses);
  // MPICH completes what is complete where one has failed, although others are not.
  return *flag || rc != MPI_SUCCESS ? taken.finish_all(rc, count, statuses) : rc;
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
  taken.look();
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
  return taken.start(0, [&] { return next.Start(request); });
}

int startall(const NextMpi& next, int count, MPI_Request* requests) {
  if (straight(next)) return next.Startall(count, requests);
  Taken taken(requests, count);
  if (taken.none() || std::count(requests, requests + count, MPI_REQUEST_NULL)) return next.Startall(count, requests);
  // Each by itself, and ours behind the others: of an MPI_Startall that fails, or that an error handler leaves by
  // longjmp, nobody can tell which it has started.
  int rc = MPI_SUCCESS;
  for (int i = 0; i < count && rc == MPI_SUCCESS; ++i)
    if (!taken.has(requests[i])) rc = next.Start(&requests[i]);
  for (int i = 0; i < count && rc == MPI_SUCCESS; ++i)
    if (taken.has(requests[i])) rc = taken.start(i, [&] { return next.Start(&requests[i]); });
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
