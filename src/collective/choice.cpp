#include "collective/choice.hpp"

#include <algorithm>

namespace crimp {

Choice cheapest(std::span<const Choice> all) {
  Choice best = *std::min_element(all.begin(), all.end(),
                                  [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  // What plain MPI would do as fast is not worth its loss.
  best.plain = best.predicted_s > 0 && best.predicted_s >= best.plain_s;
  return best;
}

}  // namespace crimp
