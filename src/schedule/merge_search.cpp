#include "schedule/merge_search.hpp"

#include <algorithm>
#include <limits>

namespace crimp {

double Timeline::end_s(std::span<const std::uint32_t> cuts) const {
  double end = 0, ready = 0;
  std::uint64_t in_group = 0;
  auto cut = cuts.begin();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (cut != cuts.end() && *cut == i) {
      ++cut;
      end = std::max(end, ready) + call_s(in_group);
      in_group = 0;
    }
    ready = std::max(ready, ready_s[i]);
    in_group += bytes[i];
  }
  return bytes.empty() ? 0 : std::max(end, ready) + call_s(in_group);
}

Cuts best_cuts(const Timeline& step) {
  const std::size_t n = step.bytes.size();
  struct Prefix {
    double end = std::numeric_limits<double>::infinity();
    std::uint32_t groups = 0, last = 0;  // last: where its last group begins
  };
  std::vector<Prefix> best(n + 1);
  best[0].end = 0;
  double ready = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    ready = std::max(ready, step.ready_s[j - 1]);
    std::uint64_t in_group = 0;
    for (std::size_t i = j; i-- > 0;) {
      in_group += step.bytes[i];
      const double end = std::max(best[i].end, ready) + step.call_s(in_group);
      const std::uint32_t groups = best[i].groups + 1;
      if (end < best[j].end || (end == best[j].end && groups < best[j].groups))
        best[j] = {end, groups, static_cast<std::uint32_t>(i)};
    }
  }
  Cuts cuts;
  for (std::size_t j = n; j > 0 && best[j].last > 0; j = best[j].last) cuts.push_back(best[j].last);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace crimp
