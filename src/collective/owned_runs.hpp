// Where what an owner of sums holds back (two_shot) may be other than 0: the runs of a tensor that its rank owns, and
// those that it owned before the layout or the algorithm changed. The latter nobody encodes any more, so that they are
// handed to the rank's own residual, which all ranks' sum sees just as well: a part in each call, because what is held
// of sums is many times larger than what a rank's own values leave. All at once it would widen the scale of what the
// rank encodes, hence what owners hold, and so on; where layouts change in every call that grows, and in a device's
// memory, where it does go at once, it goes so late that little is left of it in such programs.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "collective/shares.hpp"
#include "memory/memory_resource.hpp"

namespace crimp {

class Workers;

// Runs are of the tensor's elements, in order, and do not meet.
class OwnedRuns {
 public:
  struct Run {
    std::uint64_t begin, end;
    std::uint32_t calls = 0;  // that have handed a part of it on
    bool operator==(const Run&) const = default;
  };
  // A call by this route (RoutePlan::id), in which the rank owns these runs.
  bool by(std::uint64_t route) const { return route_ == route; }
  void own(std::uint64_t route, std::span<const Shares::Run>);  // std::bad_alloc: nothing has changed
  // Anywhere there may be something, and nothing is owned.
  void leave_all(std::uint64_t count);
  const std::vector<Run>& left() const { return left_; }
  bool empty() const { return owned_.empty() && left_.empty(); }

  // Of `held`, where it was left, one part in 2 * `ranks` to `own`, and after some calls the rest. Both are the
  // tensor's, in `memory`. Elsewhere than in the host's memory all of it at once, then. Throws Error{device_failed}:
  // what is handed on is in one of the two, or in both, but for a block.
  void hand_on(float* held, float* own, int ranks, MemoryResource& memory, Workers&);
  static constexpr std::uint32_t most_calls(int ranks) {
    return ranks > 4 ? 8 * static_cast<std::uint32_t>(ranks) : 32;
  }

 private:
  static constexpr std::size_t kMostRuns = 64;  // that are left, but for those that do not touch each other
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t route_ = kNone;
  std::vector<Run> owned_, left_;
};

}  // namespace crimp
