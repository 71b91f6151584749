// A report in figures that are ready to be shown: what `crimp report --json` prints, and what the page draws from.
// Bounded, however many ranks and tensors a job has; what is left out is said.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/figures.hpp"

namespace crimp::tools {

// Sections that the report has nothing for are null, and "missing" says of each why, and how to get it. Throws
// Error{argument_invalid} where the report is damaged.
nlohmann::ordered_json digest_of(const Figures&);

constexpr std::size_t kShownTensors = 200, kShownRows = 64, kShownHosts = 64, kShownDecisions = 400, kShownCalls = 400;

}  // namespace crimp::tools
