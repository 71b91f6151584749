// The steps of a job in a file of CRIMP_TRACE: which sums rank 0 asked for again and again, and when. Compressed calls
// and those that MPI did, so that a job's trace without a codec will do.
#pragma once
#include <iosfwd>
#include <string>

#include "schedule/step_trace.hpp"

namespace crimp::tools {

struct TraceSteps {
  StepTrace trace;  // a call is a unit and a tensor; of calls that MPI did elements count as four bytes each
  int ranks = 0;    // of the job
};

// Whether the file begins as a trace does. False where it cannot be read, or not twice (a pipe).
bool is_trace(const std::string& file);
// The same of a text that was read (of a pipe, which can be read once).
bool is_trace_text(const std::string& text);
// Throws Error{argument_invalid} that names the file: it cannot be read, is damaged, or nothing in it comes again.
TraceSteps steps_in_trace(const std::string& file);
TraceSteps steps_in_trace(std::istream&, const std::string& file);

}  // namespace crimp::tools
