// The steps of a program whose blocking calls say, or have shown, which tensors they carry: a call begins when its
// tensors are ready, and a step is over when one of them comes again. For the report; nothing is decided by it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "schedule/layout.hpp"
#include "schedule/step_trace.hpp"

namespace crimp {

// Of one communicator. Not thread-safe.
class StepRecorder {
 public:
  static constexpr std::size_t kMostCalls = 4096;  // of a step; longer ones are not kept
  static constexpr std::size_t kSamples = 32;      // steps, and calls of a size, that are kept: the last ones
  static constexpr int kPatience = 3;  // so many other steps in a row, and what is kept is of these from then on

  // A call of a known layout; seconds of any one clock. Throws std::bad_alloc, and then the call is not among the
  // step's.
  void called(const std::shared_ptr<const Layout>&, std::uint64_t bytes, double begin_s, double end_s);
  // Nothing before two equal steps. Its units are calls, its step_s is from the last call of a step to that of the
  // next.
  std::optional<StepTrace> trace() const;

 private:
  struct Call {
    std::shared_ptr<const Layout> layout;
    std::uint64_t bytes;
    double begin_s, end_s;
  };
  void step_over();
  std::vector<Call> step_;                     // under way
  std::unordered_set<std::uint64_t> in_step_;  // digests of its layouts: as many
  double last_end_s_ = -1;                     // of the step before; below 0: unknown

  struct Kept {
    std::shared_ptr<const Layout> layout;
    std::uint64_t bytes;
    std::vector<double> ready_s;  // own time of the program in the step until then
  };
  std::vector<Kept> kept_;  // in the order of the step
  std::vector<double> steps_s_;
  std::map<int, std::vector<Curve::Point>> calls_;  // by half octaves of bytes
  std::uint64_t steps_ = 0;
  int others_ = 0;
};

}  // namespace crimp
