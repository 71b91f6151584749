// A fixed set of threads that share loops (CRIMP_THREADS). With one worker everything runs on the caller.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace crimp {

class Workers {
 public:
  // As many as can be started, with the caller at least one; where that is fewer, a warning says so.
  explicit Workers(int threads);
  ~Workers();
  int threads() const { return threads_; }

  // body(part, parts) once for every part in [0, parts), parts = threads(); the caller runs part 0 and returns when all
  // are done. `body` must not throw but in the caller's part. When another thread is inside run(), the caller runs all
  // parts itself: correct, not parallel.
  void run(const std::function<void(int part, int parts)>& body);

 private:
  struct Pool;
  int threads_ = 1;
  std::unique_ptr<Pool> pool_;
};

}  // namespace crimp
