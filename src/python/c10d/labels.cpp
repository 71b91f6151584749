#include "labels.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace crimp_torch {
namespace {
thread_local std::shared_ptr<const Label> current;
thread_local bool only_once = false;
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

std::pair<std::shared_ptr<const Label>, bool> set_label(std::shared_ptr<const Label> label, bool once) {
  return {std::exchange(current, std::move(label)), std::exchange(only_once, once)};
}

std::shared_ptr<const Label> label_for(std::uint64_t count, int ranks) {
  const bool fits = current && current->total() <= count && count - current->total() < static_cast<unsigned>(ranks);
  if (!fits) return nullptr;
  return only_once ? std::exchange(current, nullptr) : current;
}

}  // namespace crimp_torch
