// Which of a trainer's tensors have been summed before, by keys of their names and sizes. One whose name comes for the
// first time has nothing held back, and may be anything: weights that are averaged once, a metric.
#pragma once
#include <cstdint>
#include <unordered_set>

namespace crimp {

// Equal on all ranks, which sum the same tensors, but where a rank could not load what was saved of them. Not
// thread-safe.
class NewNames {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 18;  // of either half; the older one is forgotten for another
  // Throws std::bad_alloc as if it had not been called.
  bool add(std::uint64_t key) {
    if (newer_.count(key)) return false;
    const bool is_new = !older_.count(key);
    newer_.insert(key);
    if (newer_.size() >= kMost) older_ = {}, older_.swap(newer_);
    return is_new;
  }

 private:
  std::unordered_set<std::uint64_t> newer_, older_;
};

}  // namespace crimp
