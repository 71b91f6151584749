// Signals that a failing write would send to its thread, held back while this lives: SIGPIPE where nobody reads any
// more, SIGXFSZ at a limit of file sizes. Both end a process that does not expect them, and no failure to say something
// may end a program. write() returns its error as ever.
#pragma once
#include <csignal>
#include <ctime>

namespace crimp {

class HeldSignals {
 public:
  HeldSignals() noexcept {
    sigset_t pending;
    sigpending(&pending);
    sigemptyset(&ours_);
    for (const int s : {SIGPIPE, SIGXFSZ})
      if (!sigismember(&pending, s)) sigaddset(&ours_, s);  // one that waits already is the program's
    pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  }
  ~HeldSignals() {
    const timespec none{};
    while (sigtimedwait(&ours_, nullptr, &none) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t ours_, before_;
};

}  // namespace crimp
