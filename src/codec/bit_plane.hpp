// One bit per element, the layout shared by the sign codecs, SketchML's bucket numbers and INCEPTIONN's classes: bit i % 8 of byte i / 8, which
// is bit i % 32 of the little-endian word i / 32. AVX-512 comparisons and a warp's ballot make such words as they are.
#pragma once
#include <cstdint>

#include "codec/host_device.hpp"

namespace crimp::bit_plane {

CRIMP_HD std::uint64_t bytes_of(std::uint64_t n) { return (n + 7) / 8; }
CRIMP_HD bool get(const std::uint8_t* plane, std::uint64_t i) { return plane[i / 8] >> i % 8 & 1; }
// Bits behind the last element are zero.
CRIMP_HD bool padded_with_zeros(const std::uint8_t* plane, std::uint64_t n) { return n % 8 == 0 || plane[n / 8] >> n % 8 == 0; }

}  // namespace crimp::bit_plane
