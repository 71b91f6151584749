#include "sample_data.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "core/random.hpp"

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
  const std::uint64_t threads = std::clamp<std::uint64_t>(count / kLeast, 1,
                                                          std::max(1u, std::thread::hardware_concurrency())),
                      each = (count + threads - 1) / threads;
  std::vector<std::jthread> others;
  for (std::uint64_t begin = each; begin < count; begin += each)
    others.emplace_back(fill_part, std::cref(distribution), stream, to, begin, std::min(count, begin + each));
  fill_part(distribution, stream, to, 0, std::min(count, each));
}

}  // namespace crimp::tools
