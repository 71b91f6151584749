// The program's signals are for its own threads: a thread that is started while a BlockedSignals lives has none of
// them. Not those that say what the thread itself did, as SIGSEGV: a program that protects pages, or says where it
// failed, has its handler called for a buffer that another thread touches, too; blocked, they would end the process.
#pragma once
#include <pthread.h>

#include <csignal>

namespace crimp {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace crimp
