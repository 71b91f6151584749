// Sums of integers on the wire, in as many bits as they need (WIRE_FORMAT.md, section 6.3): tiles of
// Homomorphic::kTile sums behind one another, 16 bytes for each bit. The width is cut into parts of 8, 4, 2 and 1 bits,
// the widest and lowest first; a part of c bits fills 16 c bytes, of which byte j holds the elements j, j + 16 c, ...,
// the first one lowest.
#pragma once
#include <cstdint>

namespace crimp {

// count: whole tiles. width: 1 to 16, and every sum below 2^width.
void pack_sums(const std::uint16_t* sums, std::uint64_t count, int width, std::uint8_t* to);
// Returns the largest sum, 0 of none.
std::uint16_t unpack_sums(const std::uint8_t* from, std::uint64_t count, int width, std::uint16_t* sums);

}  // namespace crimp
