#include "memory/thread_scratch.hpp"

#include <pthread.h>

#include "core/error.hpp"
#include "core/types.hpp"
#include "memory/memory_resource.hpp"

namespace crimp {
namespace {

constexpr std::size_t kPieceBytes = kPieceElements * sizeof(float);
constexpr std::size_t kBlockBytes = kPieceBytes + kThreadScratchBytes;

void drop(void* block) { host_memory().free(static_cast<std::byte*>(block), kBlockBytes); }

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

std::byte* block() {
  if (void* known = pthread_getspecific(key())) return static_cast<std::byte*>(known);
  std::byte* const made = host_memory().allocate(kBlockBytes);
  if (pthread_setspecific(key(), made)) {
    drop(made);
    throw Error(ErrorCode::out_of_memory, "the scratch of a thread could not be kept");
  }
  return made;
}

}  // namespace

float* thread_piece() noexcept {
  try {
    return reinterpret_cast<float*>(block());
  } catch (const std::exception&) {
    return nullptr;
  }
}
std::byte* thread_scratch() { return block() + kPieceBytes; }

}  // namespace crimp
