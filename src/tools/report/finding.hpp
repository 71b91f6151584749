// What a rule of hints.cpp looks at, and what it finds.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/figures.hpp"
#include "report/step_picture.hpp"

namespace crimp::tools {

struct Finding {
  double share;
  std::string figure, text, advice;
};
using Maybe = std::optional<Finding>;

struct Job {
  const Figures& f;
  const std::vector<StepPicture>& pictures;
  double took_s;  // per rank, in calls: of the account of times, or of what was compressed where there is none
};

std::string time_text(double s);
std::string setting(const Job&, const char* name, const char* otherwise);

// Compressed calls but for those of node_sum, which adds values up in memory: no codec and no network took part in
// them. The mean of all ranks, or one rank's.
CallSums encoded(const Job&);
CallSums encoded(const Job&, std::size_t rank);
// Of these the ones whose tensors are not known, the mean of all ranks. A rank's part does not tell which of the
// unknown calls node_sum carried, so this is what it can be at least and at most.
struct UnknownCalls {
  struct Bound {
    double calls = 0, total_s = 0;
  };
  Bound least, most;
  bool exactly = true;  // both bounds have the same calls
};
UnknownCalls encoded_unknown(const Job&);

// Rules about time.
Maybe late_rank(const Job&);
Maybe does_not_pay(const Job&);
Maybe tried(const Job&);
Maybe short_calls(const Job&);
Maybe codec_bound(const Job&);
Maybe wire_bound(const Job&);
Maybe better_plan(const Job&);
Maybe saving(const Job&);

}  // namespace crimp::tools
