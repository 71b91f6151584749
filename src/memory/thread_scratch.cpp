#include "memory/thread_scratch.hpp"

#include <pthread.h>

#include "core/error.hpp"
#include "memory/memory_resource.hpp"

namespace crimp {
namespace {

void drop(void* block) { host_memory().free(static_cast<std::byte*>(block), kThreadScratchBytes); }

// No thread_local: to register its destructor takes memory, and where there is none the C library ends the process.
pthread_key_t key() {
  static const pthread_key_t made = [] {
    pthread_key_t key;
    if (pthread_key_create(&key, drop))
      throw Error(ErrorCode::out_of_memory, "no key for the scratch of threads was given");
    return key;
  }();
  return made;
}

}  // namespace

std::byte* thread_scratch() {
  if (void* block = pthread_getspecific(key())) return static_cast<std::byte*>(block);
  std::byte* const made = host_memory().allocate(kThreadScratchBytes);
  if (pthread_setspecific(key(), made)) {
    drop(made);
    throw Error(ErrorCode::out_of_memory, "the scratch of a thread could not be kept");
  }
  return made;
}

}  // namespace crimp
