// The places of the bits that are set in a byte, in order: what a shuffle by them keeps, one behind another. Highway's
// own Compress for AVX2 and below has such a table as well, which GCC 12 copies to the stack for every vector.
#pragma once
#include <cstdint>

namespace crimp {

struct SetBits {
  alignas(8) std::uint8_t places[256][8];
  constexpr SetBits() : places{} {
    for (unsigned b = 0; b < 256; ++b)
      for (unsigned i = 0, n = 0; i < 8; ++i)
        if (b >> i & 1) places[b][n++] = static_cast<std::uint8_t>(i);
  }
};
inline constexpr SetBits kSetBits;

}  // namespace crimp
