#include "labels.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace crimp_torch {
namespace {
thread_local Block current;
}  // namespace

Label::Label(std::vector<std::string> names, const std::vector<std::uint64_t>& counts, double divisor)
    : names_(std::move(names)), divisor_(divisor) {
  TORCH_CHECK(names_.size() == counts.size(), "crimp: ", names_.size(), " names for ", counts.size(), " tensors");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    segments_.push_back({names_[i].c_str(), counts[i]});
    total_ += counts[i];
  }
  padding_ = "(padding behind " + (names_.empty() ? std::string("nothing") : names_.back()) + ")";
}

std::vector<crimp_segment> Label::segments(std::uint64_t count) const {
  std::vector<crimp_segment> all = segments_;
  if (count > total_) all.push_back({padding_.c_str(), count - total_});
  return all;
}

Block set_block(Block block) { return std::exchange(current, std::move(block)); }

std::shared_ptr<const Label> label_for(std::uint64_t count, int ranks) {
  const Label* const label = current.label.get();
  if (!label) return nullptr;
  if (label->total() > count || count - label->total() >= static_cast<unsigned>(ranks)) {
    current.most_other = std::max(current.most_other, count);
    return nullptr;
  }
  current.fitted = true;
  return current.once ? std::exchange(current.label, nullptr) : current.label;
}

}  // namespace crimp_torch
