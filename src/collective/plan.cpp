#include "collective/plan.hpp"

#include <algorithm>
#include <atomic>

namespace crimp {

std::uint64_t RoutePlan::next_id() {
  static std::atomic<std::uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t bytes_for_others(const PartPlan& part, int rank) {
  const auto summed = [&](std::uint64_t begin, std::uint64_t end) {
    std::uint64_t elements = 0;
    SummedRuns(*part.layout).each(begin, end, [&](std::uint64_t from, std::uint64_t to) { elements += to - from; });
    return elements;
  };
  std::uint64_t elements = summed(0, part.count);
  if (part.shares) {
    const Shares::Run own = part.shares->of(rank);
    elements -= summed(own.begin, own.end);
  }
  return elements * size_of(part.dtype);
}

std::vector<bool> all_zeros(Backend* backend, const float* values, std::span<const Group> groups) {
  std::vector<bool> zeros;
  if (backend) {
    std::vector<double> largest(groups.size());
    backend->magnitudes(Dtype::f32, values, groups, largest.data());
    for (const double l : largest) zeros.push_back(l == 0);
  } else {
    for (const Group& g : groups)
      zeros.push_back(std::all_of(values + g.offset, values + g.offset + g.count, [](float x) { return x == 0; }));
  }
  return zeros;
}

}  // namespace crimp
