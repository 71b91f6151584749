// How far a job has come, as CRIMP_STATUS says it: one rank's numbers.
#pragma once
#include <cstdint>
#include <string>

#include "core/records.hpp"

namespace crimp {

struct JobProgress {
  std::uint64_t compressed = 0, passed = 0;  // calls
  std::uint64_t bytes_in = 0, sent = 0;      // of the compressed ones, as CallRecord's
  double calls_s = 0;                        // in which they were carried
  TimeRecord times;                          // as far as sessions have said so far
};

// "0:42, 1234 calls compressed, 56 passed: 48.2x less, 3.10 GB/s, 12.4 s saved (measured)", without what is not known.
// The rate is that of bytes_in since `before`, in the time that calls took; where there were none since, of all.
std::string progress_text(const JobProgress& now, const JobProgress& before, double since_start_s);

}  // namespace crimp
