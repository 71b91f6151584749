#include "collective/factors.hpp"

#include <algorithm>

namespace crimp {

Factors factors_of(const PartPlan& part, const CallBuffers& call, bool agreed) {
  Factors plan;
  for (std::size_t s = 0; s < part.layout->segments.size(); ++s) {
    const Segment& segment = part.layout->segments[s];
    if (!segment.summed() || segment.count == 0) continue;
    const powersgd::Extents* known = agreed ? extents_of(call, s) : nullptr;
    powersgd::Tensor& t = plan.tensors.emplace_back();
    plan.segments.push_back(s);
    t.matrix = powersgd::matrix_of(segment.count, *part.codec, known);
    t.fresh = {segment.offset, call.sequence};
    if (call.in) t.values = call.in.floats() + segment.offset, t.out = call.out.floats() + segment.offset;
    t.memory = call.residuals.empty() ? nullptr : call.residuals[s];
    plan.left += t.matrix.left();
    plan.right += t.matrix.right();
    if (!powersgd::finds(segment.count, *part.codec, known)) continue;
    auto& found = plan.found.emplace_back(Factors::Candidates{
        plan.tensors.size() - 1, s, powersgd::candidates_of(segment.count, part.codec->parameter_word())});
    if (found.cols.size() < 2) continue;
    plan.shares += found.cols.size();
    plan.sample = std::max(
        plan.sample, powersgd::sample_elements(segment.count, found.cols, powersgd::parameters_of(*part.codec).rank));
  }
  return plan;
}

}  // namespace crimp
