#include "codec/simd.hpp"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>

#include "core/error.hpp"

namespace crimp {
namespace {

std::atomic<std::int64_t> chosen_and_below{~std::int64_t{0}};

// Targets are bits, the best the lowest. Highway's own SupportedTargets() undoes what was chosen.
std::int64_t here() {
  const std::int64_t targets = hwy::SupportedTargets() & HWY_TARGETS, chosen = chosen_and_below;
  if (~chosen) hwy::GetChosenTarget().Update(targets & chosen);
  return targets;
}
std::int64_t best(std::int64_t targets) { return targets & -targets; }

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (std::int64_t targets = here(); targets; targets &= targets - 1)
    names.emplace_back(hwy::TargetName(best(targets)));
  return names;
}

std::string simd_target() { return hwy::TargetName(best(here() & chosen_and_below)); }

void choose_simd(std::string_view name) {
  std::string legal;
  for (std::int64_t targets = here(); targets; targets &= targets - 1) {
    const std::string one = hwy::TargetName(best(targets));
    if (one == name) {
      chosen_and_below = targets;
      hwy::GetChosenTarget().Update(targets);
      return;
    }
    legal += (legal.empty() ? "" : ", ") + one;
  }
  throw Error(ErrorCode::argument_invalid,
              "'" + std::string(name) + "' is no SIMD target of this processor and build; legal: " + legal);
}

}  // namespace crimp
