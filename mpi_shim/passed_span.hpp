// A blocking call that MPI does, in the trace. Without one: one branch. Where an error handler leaves by longjmp the
// span is missing.
#pragma once
#include "core/clock.hpp"
#include "core/pass_reason.hpp"
#include "core/trace.hpp"
#include "mpi/runtime.hpp"

namespace crimp {

class PassedSpan {
 public:
  PassedSpan(PassReason why, std::uint64_t count, bool wanted = true)
      : trace_(wanted ? Runtime::get().trace() : nullptr), why_(why), count_(count) {
    if (trace_) begin_ = Clock::now();
  }
  ~PassedSpan() {
    if (trace_) trace_->passed(text_of(why_), count_, begin_, Clock::now());
  }
  PassedSpan(const PassedSpan&) = delete;
  PassedSpan& operator=(const PassedSpan&) = delete;

 private:
  Trace* const trace_;
  PassReason why_;
  std::uint64_t count_;
  Clock::time_point begin_;
};

}  // namespace crimp
