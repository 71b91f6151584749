// What calls took, for the report and CRIMP_STATUS: those left to MPI too, and the steps that calls make up. Without
// either nothing is kept.
#pragma once
#include <cstdint>
#include <memory>

#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "core/clock.hpp"
#include "core/report.hpp"
#include "mpi/context.hpp"
#include "schedule/step_recorder.hpp"

namespace crimp {

// Of one communicator. Not thread-safe.
class TimedCalls {
 public:
  // Both outlive this. Steps are of all ranks alike: one keeps them.
  TimedCalls(const Context& context, Chooser& chooser, bool keeps_steps)
      : context_(context), chooser_(chooser), keeps_steps_(context.records && keeps_steps) {}

  // A call that ends now. Of a layout whose tensors are not known nothing is kept.
  void ended(const std::shared_ptr<const Layout>&, std::uint64_t bytes, Clock::time_point begun) noexcept;
  // The next left_ended() is this call's; one without is nobody's. plan: whose codecs share the time; else it is
  // `account`'s.
  struct Left {
    Clock::time_point begun = {};
    std::uint64_t count = 0;
    std::shared_ptr<const CallPlan> plan = nullptr;  // null: of a pass
    Account* account = nullptr;
    std::uint64_t elements = 0, plain_bytes = 0;     // of that account
    std::shared_ptr<const Layout> layout = nullptr;  // null: not looked at
    std::uint64_t bytes = 0;
  };
  void leave(Left left) { left_ = std::move(left); }
  void forget_left() {  // MPI has failed
    if (left_.count) left_ = {};
  }
  void left_ended() noexcept;
  // At a call's end: where somebody wants to know, what all have taken until now.
  void look() noexcept {
    if (const std::uint32_t wanted = context_.report.times_wanted(); wanted != seen_) seen_ = wanted, say_until_now();
  }
  void note_in(Report&) const;

 private:
  const Context& context_;
  Chooser& chooser_;
  const bool keeps_steps_;
  StepRecorder steps_;
  Left left_{};
  std::uint32_t seen_ = 0;
  void say_until_now() noexcept;
};

}  // namespace crimp
