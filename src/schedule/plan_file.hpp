// CRIMP_PLAN_FILE: merge plans that CRIMP_MERGE=auto has found, for later jobs. JSON; its entries are told apart by
// what a plan depends on, so that other models, numbers of ranks and settings keep theirs. The newest come first, kMost
// at most.
//
// Legal names: of a regular file, new or not; links are not followed. A file that is not empty and not one of these, or
// of another format version, is never written to. Two jobs that save at the same moment leave a whole file, which may
// lack one of the two plans.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/output_file.hpp"
#include "schedule/merge_trials.hpp"

namespace crimp {

struct NamedTensor {
  std::string name;
  std::uint64_t bytes = 0;
  auto operator<=>(const NamedTensor&) const = default;
};

struct SavedPlan {
  // What must be equal in another run: these, and the tensors in whatever order.
  int ranks = 0;
  std::string settings;
  std::vector<NamedTensor> tensors;  // in the order that the cuts count in
  MergeTrials::Plan plan;
  double step_s = 0;   // the median of its steps
  std::string origin;  // what proposed it
  bool is_for(const SavedPlan& other) const;
};

// A file's text. Of entries that make no sense (cuts that do not rise, or lie beyond the tensors, ...) `problem` says
// the first.
struct PlanText {
  static constexpr std::size_t kMost = 32;
  bool ours = true;  // may be replaced
  std::string problem;
  std::vector<SavedPlan> plans;
  explicit PlanText(std::string_view text);
  std::string text() const;  // throws nlohmann::json::exception for names that are no UTF-8
};

class PlanFile {
 public:
  explicit PlanFile(const std::string& name);

  // The saved plan for the same key. `problem`: empty, or why there is none, or what is wrong beside it.
  std::optional<SavedPlan> find(const SavedPlan& key, std::string& problem) const;
  // Takes the place of the plan for the same key. Empty: done; else why not, as a sentence that names the file.
  std::string save(SavedPlan) const;

  std::string what(const std::string& problem) const { return "CRIMP_PLAN_FILE: '" + name_ + "' " + problem; }

 private:
  PlanText read() const;
  std::string name_, path_;
};

}  // namespace crimp
