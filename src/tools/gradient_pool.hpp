// Values that stand for a training's gradients: normal, others in every step, so that residuals fill as they do there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "sample_data.hpp"

namespace crimp::tools {

class GradientPool {
 public:
  GradientPool(std::uint64_t elements, int rank) : values_(elements + kShift) {
    const std::uint64_t drawn = std::min<std::uint64_t>(values_.size(), kDrawn);
    fill("normal", static_cast<std::uint32_t>(rank), values_.data(), drawn);
    for (std::uint64_t at = drawn; at < values_.size(); at += drawn)
      std::copy_n(values_.data(), std::min(drawn, values_.size() - at), values_.data() + at);
  }
  // So many elements as there are, of this step.
  const float* of(std::uint64_t step) const { return values_.data() + step * 7919 % kShift; }

 private:
  static constexpr std::uint64_t kShift = 1 << 16, kDrawn = (1 << 21) + 31;
  std::vector<float> values_;
};

}  // namespace crimp::tools
