// What must go on where memory lacks, tried where there is none.
#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace crimp::test {

// Runs work() in a new thread of a child, when malloc() gives nothing any more. The child's status, 0 where it came to
// the end. Not for sanitizers, whose malloc() ends the process then.
template <class Work>
int status_without_memory(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([&] {
      const rlimit none{0, 0};
      ::setrlimit(RLIMIT_AS, &none);
      for (std::size_t size = std::size_t{1} << 20; size > 0; size = size > 512 ? size / 2 : size - 1)
        while (std::malloc(size)) {
        }
      work();
      _exit(0);
    }).join();
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace crimp::test
