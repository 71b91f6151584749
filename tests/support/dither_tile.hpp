// One tile of random bits through the SIMD target that is chosen.
#pragma once
#include "codec/coding/dither.hpp"

namespace crimp::test {
void dither_tile(const RandomCounter&, std::uint32_t stream, std::uint32_t tile, std::uint32_t* bits);
}
