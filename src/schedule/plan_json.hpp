// A merge plan's members in JSON, as CRIMP_PLAN_FILE and the report have them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "schedule/merge_trials.hpp"

namespace crimp {

// "holds", "cuts", and "codecs" where a group has another one than the first.
void put_plan(nlohmann::json& to, const MergeTrials::Plan&);
// Throws nlohmann::json::exception, or std::runtime_error that says what makes no sense for so many tensors.
MergeTrials::Plan plan_in(const nlohmann::json& from, std::size_t tensors);

std::uint64_t natural(const nlohmann::json&);  // throws likewise

}  // namespace crimp
