// CRIMP_RULES: which tensors get which codec, by name and size. "pattern=codec; <N=codec; >=N=codec", the first match
// wins. "pattern=codec|codec|...": any of them may carry these tensors; CRIMP_MERGE=auto finds which one takes least
// (merge_search.hpp), elsewhere it is the first.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

// Applies to tensors whose names are known (crimp_allreduce, Horovod). Patterns are shell patterns (*, ?, [...]) over
// the whole name; N is a count of elements with an optional suffix k, M or G.
class Rules {
 public:
  static constexpr std::size_t kMostCodecs = 4;
  struct Rule {
    std::string pattern;                // empty: by size
    std::uint64_t below = 0, from = 0;  // matches count < below, or count >= from, where not 0
    std::vector<std::string> codecs;    // their texts, kMostCodecs at most; "none", which stands alone: summed exactly
    bool plain = false;  // none:memory=none: nor have these the momentum that others that are summed exactly have
  };
  Rules() = default;
  explicit Rules(std::string_view text);  // throws Error{option_invalid} that names the rule and what is legal

  const std::vector<Rule>& all() const { return rules_; }
  // Index of the first rule that matches, or -1. Of the tensors of a group of Horovod's
  // (grouped_allreduce.<name>_<i>of<n>) whose name ends in .weight or .bias, as the optimizer's do, which have that of
  // their first parameter, the built-in rules of Settings judge the first by that name, the others by their sizes
  // alone; all other names, and all names by rules that a user wrote, are matched as they are.
  int match(const std::string& name, std::uint64_t count) const;

 private:
  std::vector<Rule> rules_;
  bool built_in_ = false;
};

}  // namespace crimp
