// How a job went over its time, for CRIMP_REPORT: where and when it ran, what its calls were from bin to bin, what
// became of each tensor. Kept only where there will be a report; bounded, whatever the job does. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/tensor_log.hpp"
#include "core/time_bins.hpp"

namespace crimp {

class History {
 public:
  explicit History(Clock::time_point origin);  // of all ranks together, as nearly as they can tell

  // A call, or a part of one, from `begin` to `end`. in_calls_s is filled in here.
  void called(Clock::time_point begin, Clock::time_point end, TimeBins::Amounts);
  void tensor(std::string_view name, const char* source, std::uint64_t elements, std::string_view codec,
              double bytes_in, double sent_bytes);
  void sampled(std::string_view name, const char* memory, std::uint64_t call, double norm, double values_norm);

  // An object: "host", "program", "started" and "ended" (seconds since 1970), and what there is of "bins" (whole
  // microseconds and bytes, a list for each kind that is not 0 all along) and "tensors".
  std::string json() const;

 private:
  const Clock::time_point origin_;
  double started_;  // of the system's clock
  mutable std::mutex mutex_;
  TimeBins bins_;
  TensorLog tensors_;
};

}  // namespace crimp
