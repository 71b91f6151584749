#include "collective/plan.hpp"

namespace crimp {

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

}  // namespace crimp
