// Stackful contexts for the executor's lanes. A fiber that is not resumed to its end may simply be started anew:
// nothing on its stack is destroyed.
#pragma once
#include <cstddef>

namespace simt {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  void start(void (*entry)());  // what the next resume() calls; it must not return but call finish()
  void resume();                // until the fiber calls suspend() or finish()
  static void suspend();        // from within a fiber
  [[noreturn]] static void finish();
  bool in_guard(const void*) const;  // below the stack: it has overflowed

 private:
  unsigned char* memory_;
  [[maybe_unused]] void *sp_ = nullptr, *context_ = nullptr,
                        *fake_stack_ = nullptr;  // by the way that contexts are switched
  void (*entry_)() = nullptr;
  bool unfinished_ = false;  // started, and not come to finish()
  static void body();
  void leave(bool for_good);
};

}  // namespace simt
