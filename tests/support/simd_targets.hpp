// Runs a test once per SIMD target that was compiled and that this machine has.
#pragma once
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <string>
#include <vector>

namespace crimp::test {

// Makes one target the best one for as long as it lives. Not for use while other threads run codecs.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// fn(name) for every target, the best one first.
template <class Fn>
int for_each_target(Fn&& fn) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  for (const std::int64_t target : targets) {
    const OnlyTarget only(target);
    fn(std::string(hwy::TargetName(target)));
  }
  return static_cast<int>(targets.size());
}

}  // namespace crimp::test
