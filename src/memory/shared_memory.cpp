#include "memory/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/blocked_signals.hpp"
#include "core/descriptor.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kDoor = 4096;  // bytes before the memory, which hold the key

[[noreturn]] void refuse(const std::string& what, int why) {
  throw Error(ErrorCode::out_of_memory, what + ": " + std::strerror(why));
}

}  // namespace

SharedMemory::SharedMemory(std::uint64_t bytes) {
  const std::string what = std::to_string(bytes) + " bytes of memory to share were not given";
  // A file beyond this limit would be a signal, not an error.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kDoor + bytes)
    refuse(what + " (ulimit -f)", EFBIG);
  const int descriptor = beyond_standard(::memfd_create("crimp", MFD_CLOEXEC));
  if (descriptor < 0) refuse(what, errno);
  place_ = {::getpid(), descriptor, bytes, 0};
  try {
    // Kernels answer EINTR here whatever SA_RESTART says, and a fast timer would do so for ever.
    int why = EINTR;
    {
      const BlockedSignals blocked;
      for (int turn = 0; why == EINTR && turn < 100; ++turn)
        why = ::posix_fallocate(descriptor, 0, static_cast<off_t>(kDoor + bytes));
    }
    if (why) refuse(what, why);
    map(descriptor);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::getrandom(&place_.key, sizeof place_.key, GRND_NONBLOCK) != sizeof place_.key)
    place_.key = reinterpret_cast<std::uintptr_t>(base_);
  std::memcpy(base_, &place_.key, sizeof place_.key);
}

SharedMemory::SharedMemory(const Place& place) {
  const std::string name = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  const std::string what = "the memory of process " + std::to_string(place.process) + " could not be shared";
  const int descriptor = beyond_standard(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  if (descriptor < 0) refuse(what + " (" + name + ")", errno);
  place_.bytes = place.bytes;
  try {
    if (::lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(kDoor + place.bytes)) refuse(what, ESTALE);
    map(descriptor);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  // In another container the number is another process's.
  if (std::memcmp(base_, &place.key, sizeof place.key) != 0) {
    *this = SharedMemory();
    refuse(what + " (it is another process here)", ESTALE);
  }
}

void SharedMemory::map(int descriptor) {
  void* const base = ::mmap(nullptr, kDoor + place_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) refuse(std::to_string(place_.bytes) + " bytes of shared memory were not mapped", errno);
  base_ = static_cast<std::byte*>(base);
  data_ = base_ + kDoor;
}

SharedMemory::~SharedMemory() {
  close_door();
  if (base_) ::munmap(base_, kDoor + place_.bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(place_, other.place_);
  return *this;
}

void SharedMemory::close_door() {
  if (place_.descriptor >= 0) ::close(static_cast<int>(std::exchange(place_.descriptor, -1)));
}

}  // namespace crimp
