// What merge plans would make of steps that a report or a trace has, by the timeline that CRIMP_MERGE=auto uses.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "schedule/step_trace.hpp"

namespace crimp::tools {

struct Traced {
  std::size_t rank;
  bool horovod;
  StepTrace trace;
  nlohmann::json tried = nlohmann::json::array();  // of Horovod's: plans that ran
  int ranks = 0;                                   // of the job
};

// Throws Error{argument_invalid} that names the file.
std::vector<Traced> traces_in(const std::string& file);
// One of them as JSON, and printed unless told otherwise.
nlohmann::ordered_json show(const Traced&, bool print);

}  // namespace crimp::tools
