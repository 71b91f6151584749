/* Preloaded before Crimp: counts what libcrimp.so asks of the system for as long as the process lives, by the address
 * that each call returns to, and says it at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMemory, kFiles, kModules, kThreads, kClock, kKinds };
static const char* const names[kKinds] = {"memory", "files", "modules", "threads", "clock"};
static int counts[kKinds];
static int total;

static void count(int kind, void* to) {
  Dl_info info;
  if (dladdr(to, &info) && info.dli_fname && strstr(info.dli_fname, "libcrimp")) ++counts[kind], ++total;
}
#define COUNTED(kind, type, name, parameters, ...)                 \
  type name parameters {                                           \
    static type(*next) parameters;                                 \
    if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    count(kind, __builtin_return_address(0));                      \
    return next(__VA_ARGS__);                                      \
  }
struct timespec;
COUNTED(kMemory, void*, _Znwm, (size_t n), n)
COUNTED(kMemory, void*, _Znam, (size_t n), n)
COUNTED(kFiles, FILE*, fopen, (const char* file, const char* mode), file, mode)
COUNTED(kFiles, int, open, (const char* file, int flags, int mode), file, flags, mode)
COUNTED(kModules, int, dl_iterate_phdr, (int (*call)(struct dl_phdr_info*, size_t, void*), void* data), call, data)
COUNTED(kThreads, int, pthread_create, (void* thread, const void* attributes, void* (*start)(void*), void* data),
        thread, attributes, start, data)
COUNTED(kClock, int, clock_gettime, (int clock, struct timespec* time), clock, time)
extern void* __libc_malloc(size_t);
void* malloc(size_t n) {
  count(kMemory, __builtin_return_address(0));
  return __libc_malloc(n);
}
void* dlopen(const char* file, int flags) {
  static void* (*next)(const char*, int);
  if (!next) next = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  if (file) count(kModules, __builtin_return_address(0)); /* NULL asks nothing of the system */
  return next(file, flags);
}

__attribute__((destructor)) static void say(void) {
  printf("asked by libcrimp:");
  for (int i = 0; i < kKinds; ++i)
    if (counts[i]) printf(" %s %d", names[i], counts[i]);
  puts(total ? "" : " nothing");
}
