// What to try next, and by which figure: a table of rules, ranked by the share of time that each one is about.
#pragma once
#include <string>
#include <vector>

#include "report/figures.hpp"
#include "report/step_picture.hpp"

namespace crimp::tools {

struct Hint {
  const char* id;      // of the rule
  std::string level;   // high | medium | low: of the share, or because nothing was compressed or something failed
  double share;        // of the time in calls that this is about, 0 to 1; 0: not known
  std::string figure;  // "40 % of the time in calls"
  std::string text;    // what it says of the job
  std::string advice;  // what to do, with the setting
};

// Best first. Never empty: where no rule fires it says so, with the figures that it looked at.
std::vector<Hint> hints_of(const Figures&, const std::vector<StepPicture>&);

}  // namespace crimp::tools
