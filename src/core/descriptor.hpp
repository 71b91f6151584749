// Descriptors of Crimp's own, which are none of the three that programs print to.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace crimp {

// Of a descriptor that the system has just given, or -1: another one for the same that is none of 0, 1 and 2, closed by
// exec. Where a program has closed its standard error a file gets that number, and what the program goes on printing
// would be in it. -1, with errno, where there is none; the one given is closed then.
inline int beyond_standard(int descriptor) noexcept {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int beyond = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return beyond;
}

}  // namespace crimp
