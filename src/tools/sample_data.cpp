#include "sample_data.hpp"

#include <cmath>

#include "core/random.hpp"

namespace crimp::tools {

void fill(const std::string& distribution, std::uint32_t stream, float* to, std::uint64_t count) {
  const Random values(20260, stream, 0), choice(20260, stream, 1);
  if (distribution == "laplace") {
    for (std::uint64_t i = 0; i < count; ++i) {
      const float u = values.uniform(i) - 0.5f;  // [-0.5, 0.5)
      to[i] = -std::copysign(std::log(1.0f - 2.0f * std::fmin(std::fabs(u), 0x0.fffffep-1f)), -u);
    }
  } else if (distribution == "sparse") {
    for (std::uint64_t i = 0; i < count; ++i) to[i] = choice.bits(i) % 100 ? 0.0f : values.normal(i);
  } else {
    for (std::uint64_t i = 0; i < count; ++i) to[i] = values.normal(i);
  }
}

}  // namespace crimp::tools
