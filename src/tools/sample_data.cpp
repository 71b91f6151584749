#include "sample_data.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/random.hpp"
#include "memory/workers.hpp"

namespace crimp::tools {
namespace {

// Elements [begin, end), each by its own number.
void fill_part(const std::string& distribution, std::uint32_t stream, float* to, std::uint64_t begin,
               std::uint64_t end) {
  const Random values(20260, stream, 0), choice(20260, stream, 1);
  if (distribution == "laplace") {
    for (std::uint64_t i = begin; i < end; ++i) {
      const float u = values.uniform(i) - 0.5f;  // [-0.5, 0.5)
      to[i] = -std::copysign(std::log(1.0f - 2.0f * std::fmin(std::fabs(u), 0x0.fffffep-1f)), -u);
    }
  } else if (distribution == "sparse") {
    for (std::uint64_t i = begin; i < end; ++i) to[i] = choice.bits(i) % 100 ? 0.0f : values.normal(i);
  } else {
    for (std::uint64_t i = begin; i < end; ++i) to[i] = values.normal(i);
  }
}

}  // namespace

void fill(const std::string& distribution, std::uint32_t stream, float* to, std::uint64_t count) {
  constexpr std::uint64_t kLeast = 1 << 20;  // of a thread, below which starting it costs more
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  Workers workers(static_cast<int>(std::clamp<std::uint64_t>(count / kLeast, 1, cores)));
  workers.run([&](int part, int parts) {
    const auto at = [&](int i) { return count * static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(parts); };
    fill_part(distribution, stream, to, at(part), at(part + 1));
  });
}

}  // namespace crimp::tools
