/* For MPICH over UCX, whose waiting ranks never give way: with more ranks than cores each turn takes a time slice. They
 * yield a few times, and sleep a moment then: yielding ranks keep whole cores busy with one another. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

unsigned ucp_worker_progress(void* worker) {
  enum { kYields = 16 };
  static const struct timespec moment = {0, 1000}; /* and the kernel's slack of 50 us */
  static unsigned (*next)(void*);
  static _Thread_local unsigned idle;
  if (!next) next = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  /* Where a program has opened MPI for itself alone, UCX stands behind nobody. */
  if (!next) {
    void* const ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    if (!ucp) abort();
    next = (unsigned (*)(void*))dlsym(ucp, "ucp_worker_progress");
  }
  const unsigned events = next(worker);
  if (events) idle = 0;
  else if (++idle <= kYields) sched_yield();
  else nanosleep(&moment, NULL);
  return events;
}
