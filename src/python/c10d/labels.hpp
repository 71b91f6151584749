// The names of the tensors in a buffer that is about to be reduced.
#pragma once
#include <crimp/crimp.h>

#include <memory>
#include <string>
#include <vector>

namespace crimp_torch {

class Label {
 public:
  // One name for each count. `divisor`: what elements are divided by before they are summed.
  Label(std::vector<std::string> names, const std::vector<std::uint64_t>& counts, double divisor);
  Label(const Label&) = delete;  // segments point into names

  // Of a buffer of `count` elements: what is behind the named tensors is padding, named after the last of them.
  std::vector<crimp_segment> segments(std::uint64_t count) const;
  std::uint64_t total() const { return total_; }
  double divisor() const { return divisor_; }

 private:
  std::vector<std::string> names_;
  std::string padding_;
  std::vector<crimp_segment> segments_;
  std::uint64_t total_ = 0;
  double divisor_;
};

// What calls of this thread are told, and what has come of it.
struct Block {
  std::shared_ptr<const Label> label = {};
  bool once = false;
  bool fitted = false;           // some call
  std::uint64_t most_other = 0;  // the most elements of a call that it does not fit
};

// For calls of this thread, until the next one; returns what was set. A call whose buffer has another number of
// elements takes no notice; one that is scattered among so many ranks may have padding for less than one element each.
// once: for the first call that it fits; a hook may sum other values of the same number, which are not these tensors.
Block set_block(Block);
std::shared_ptr<const Label> label_for(std::uint64_t count, int ranks = 1);

}  // namespace crimp_torch
