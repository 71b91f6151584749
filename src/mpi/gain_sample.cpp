#include "mpi/gain_sample.hpp"

#include <algorithm>
#include <cmath>
#include <exception>

namespace crimp {

GainSample::GainSample(const CallPlan& plan, const ChosenParts& chosen, const BoundCall& bound,
                       MemoryResource& memory) noexcept
    : memory_(memory) {
  if (bound.failed || bound.parts[0].flags) return;
  std::uint64_t most = 0;
  ConstValues values;
  for (std::size_t p = 0; p < bound.residuals.size(); ++p) {
    if (!plan.parts[p].of_ladder || chosen.choices[p].carriage.nodes) continue;
    for (std::size_t s = 0; s < bound.residuals[p].size(); ++s) {
      const Residual* const kept = bound.residuals[p][s];
      const Segment& segment = plan.parts[p].plan.layout->segments[s];
      if (!kept || segment.count <= most) continue;
      most = segment.count;
      values = bound.parts[p].in + segment.offset;
      residual_ = kept->values;
    }
  }
  if (!values) return;
  try {
    values_.resize(std::min(most, kElements));
    std::vector<float> waits(values_.size());
    read_floats(memory_, values, values_);
    memory_.read(waits.data(), residual_, waits.size() * sizeof(float));
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += waits[i];
  } catch (const std::exception&) {
    values_.clear();
  }
}

double GainSample::gain() const noexcept {
  if (values_.empty()) return -1;
  try {
    std::vector<float> left(values_.size());
    memory_.read(left.data(), residual_, left.size() * sizeof(float));
    double due = 0, sent = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double value = static_cast<double>(values_[i]), went = value - static_cast<double>(left[i]);
      due += value * value;
      sent += went * went;
    }
    return due > 0 && std::isfinite(due) && std::isfinite(sent) ? std::sqrt(sent / due) : -1;
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace crimp
