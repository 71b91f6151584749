// The ranks' timelines beside each other: all in bins of one width, and of many ranks neighbours together.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "report/figures.hpp"

namespace crimp::tools {

// "rows": ranks from to, and for each bin per mille of its time "in_calls", "codec" (encoding and decoding), "wire",
// "wait"; and bytes "sent". "over_time": of all ranks together, seconds and bytes of each bin. Null where the report
// has none. Throws std::runtime_error where timelines cannot be laid beside each other.
nlohmann::ordered_json heat_map(const Figures&);

// What each rank's calls took: as many rows as the heat map may have.
nlohmann::ordered_json ranks_object(const Figures&);

}  // namespace crimp::tools
