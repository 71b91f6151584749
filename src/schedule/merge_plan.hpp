// CRIMP_MERGE: which consecutive tensors are reduced together (MergeComp, arXiv 2103.15195).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace crimp {

class MergePlan {
 public:
  MergePlan() = default;
  // off | all | bytes=N (a group ends where it has at least N bytes; suffix k, M, G) | y=N (N groups of about equal
  // bytes) | cuts=i,j,... (groups begin at tensors 0, i, j, ...) | auto (found while the job runs: merge_trials.hpp).
  // Throws Error{option_invalid}.
  explicit MergePlan(std::string_view text);

  bool off() const { return kind_ == Kind::off; }
  bool searched() const { return kind_ == Kind::searched; }
  // Not of a searched plan. The group of every tensor, from 0 upwards, for tensors of these sizes in their recorded
  // order.
  std::vector<std::uint32_t> groups(const std::vector<std::uint64_t>& tensor_bytes) const;

 private:
  enum class Kind { off, all, bytes, number, cuts, searched } kind_ = Kind::off;
  std::uint64_t number_ = 0;
  std::vector<std::uint64_t> cuts_;
};

}  // namespace crimp
