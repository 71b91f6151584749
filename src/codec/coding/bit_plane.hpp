// One bit per element, the layout shared by the sign codecs, SketchML's bucket numbers and INCEPTIONN's classes: bit i
// % 8 of byte i / 8, which is bit i % 32 of the little-endian word i / 32. AVX-512 comparisons and a warp's ballot make
// such words as they are.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::bit_plane {

CRIMP_HD std::uint64_t bytes_of(std::uint64_t n) { return (n + 7) / 8; }
CRIMP_HD bool get(const std::uint8_t* plane, std::uint64_t i) { return plane[i / 8] >> i % 8 & 1; }
// Bits behind the last element are zero.
CRIMP_HD bool padded_with_zeros(const std::uint8_t* plane, std::uint64_t n) {
  return n % 8 == 0 || plane[n / 8] >> n % 8 == 0;
}

// Bit j of the result is the lowest bit of byte j of a little-endian word, and back.
inline constexpr std::uint64_t kOnes = 0x0101010101010101;
CRIMP_HD std::uint8_t gather(std::uint64_t bytes) {
  return static_cast<std::uint8_t>((bytes & kOnes) * 0x0102040810204080 >> 56);
}
CRIMP_HD std::uint64_t spread(std::uint8_t bits) {
  return ((bits * kOnes & 0x8040201008040201) + 0x7f * kOnes) >> 7 & kOnes;
}

}  // namespace crimp::bit_plane
