/* For MPICH over UCX, whose waiting ranks never give way: with more ranks than cores each turn takes a time slice. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void* worker) {
  static unsigned (*next)(void*);
  if (!next) next = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  /* Where a program has opened MPI for itself alone, UCX stands behind nobody. */
  if (!next) next = (unsigned (*)(void*))dlsym(dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD), "ucp_worker_progress");
  const unsigned events = next(worker);
  if (!events) sched_yield();
  return events;
}
