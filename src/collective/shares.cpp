#include "collective/shares.hpp"

namespace crimp {

std::string Shares::text() const {
  const std::uint64_t count = borders.back(), most = largest();
  if (collective == Collective::reduce)
    for (int r = 0; r < ranks(); ++r)
      if (of(r).count()) return "reduce to " + std::to_string(r);
  if (most * static_cast<std::uint64_t>(ranks()) == count) return "reduce_scatter";
  return "reduce_scatter (up to " + std::to_string(most) + ", shares " + std::to_string(digest() & 0xffffffffu) + ")";
}

}  // namespace crimp
