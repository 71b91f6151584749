// The places of the bits that are set in a byte, in order: what a shuffle by them keeps, one behind another; and how
// many are set below each place: a shuffle by these brings what lies one behind another to its places. Highway's own
// Compress for AVX2 and below has such a table as well, which GCC 12 copies to the stack for every vector.
#pragma once
#include <cstdint>

namespace crimp {

struct SetBits {
  alignas(8) std::uint8_t places[256][8], ranks[256][8];
  constexpr SetBits() : places{}, ranks{} {
    for (unsigned b = 0; b < 256; ++b)
      for (unsigned i = 0, n = 0; i < 8; ++i) {
        ranks[b][i] = static_cast<std::uint8_t>(n);
        if (b >> i & 1) places[b][n++] = static_cast<std::uint8_t>(i);
      }
  }
};
inline constexpr SetBits kSetBits;

}  // namespace crimp
