// A step that a report has traced, as the calls of its merge plan on one timeline (schedule/merge_search.hpp).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/figures.hpp"

namespace crimp::tools {

struct StepPicture {
  struct Call {
    std::uint64_t tensors, bytes;
    double ready_s, begin_s, end_s;  // since the step's begin: its tensors are ready; the call, as the timeline has it
  };
  struct Plan {
    std::string name;
    std::uint64_t groups;
    double end_s;         // of the exchange
    std::string setting;  // that makes it; empty: the program makes its calls itself
  };
  std::size_t rank = 0;
  bool horovod = false;
  bool settled = false;  // its search is over, which has measured plans
  std::uint64_t tensors = 0, bytes = 0, steps = 0;
  double step_s = 0;  // as the program has it; 0: not measured
  std::string plan;   // of `calls`: what ran, as far as the report says it
  std::vector<Call> calls;
  std::vector<Plan> plans;  // what it would be with others; the last one is the optimum
  double end_s() const { return calls.empty() ? 0 : calls.back().end_s; }
};

// One for each trace of a report, those of Horovod first. Throws Error{argument_invalid} where one is damaged.
std::vector<StepPicture> step_pictures(const Figures&);

}  // namespace crimp::tools
