#include "schedule/sample.hpp"

#include <algorithm>

namespace crimp {

Sample::Sample(std::uint64_t count, std::uint64_t reads, const Read& read) {
  const std::uint64_t edge = end_of(count), between = count - 2 * edge;
  if (between <= kElements) {
    size_ = between;
    if (between) read(edge, between, values_.data());
    return;
  }
  const std::uint64_t run = kElements / reads, stride = between / reads;
  for (std::uint64_t i = 0; i < reads; ++i) {
    // Somewhere in its part of the buffer: places at equal distances would fall on one column of many matrices.
    const std::uint64_t slack = stride > run ? stride - run : 0;
    const std::uint64_t first = i * stride + ((i + 1) * 0x9e3779b97f4a7c15u >> 32) % (slack + 1);
    if (first >= between) break;
    const std::uint64_t here = std::min(run, between - first);
    read(edge + first, here, values_.data() + i * run);
    size_ = i * run + here;
  }
}

}  // namespace crimp
