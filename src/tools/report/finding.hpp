// What a rule of hints.cpp looks at, and what it finds.
#pragma once
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
// them.
CallSums encoded(const Job&);
// Of the calls whose tensors are not known; a report does not tell which of them node_sum carried, so the fewest that
// it can be.
struct UnknownCalls {
  double calls = 0, total_s = 0;
  bool exactly = true;  // as many, not more
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
