// Round to nearest, subnormals kept, no traps: for as long as a FloatEnvironment lives on this thread.
//
// Frameworks set flush-to-zero on their threads. If one rank did and another did not, the same payloads would decode to
// different sums.
#pragma once
#include <cfenv>

namespace crimp {

class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace crimp
