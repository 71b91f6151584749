// Codes of 2 to 16 bits, packed so that neighbouring lanes of a processor write neighbouring bytes. WIRE_FORMAT.md,
// section 4.0.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::bit_pack {

// Lane i of a full tile holds the codes of elements i, i + 16, ..., i + 112 as a string of 8 * bits bits; its byte k is
// the tile's byte 16 k + i.
inline constexpr std::uint32_t kTile = 128, kLanes = 16, kPerLane = 8;

// Lanes of the tile that starts at element `begin` of n.
CRIMP_HD std::uint32_t lanes(std::uint64_t begin, std::uint64_t n) {
  const std::uint64_t rest = n - begin;
  return rest >= kTile ? kLanes : static_cast<std::uint32_t>((rest + kPerLane - 1) / kPerLane);
}

CRIMP_HD std::uint64_t packed_bytes(std::uint64_t n, std::uint32_t bits) {
  return (n / kTile * kLanes + (n % kTile + kPerLane - 1) / kPerLane) * bits;
}

// A tile of m <= 128 elements, code by code.
CRIMP_HD void pack(const std::uint16_t* codes, std::uint32_t m, std::uint32_t bits, std::uint8_t* bytes) {
  const std::uint32_t w = lanes(0, m);
  for (std::uint32_t i = 0; i < w * bits; ++i) bytes[i] = 0;
  for (std::uint32_t i = 0; i < m; ++i)
    for (std::uint32_t bit = i / w * bits, left = codes[i], end = bit + bits; bit < end;) {
      const std::uint32_t room = 8 - bit % 8;
      bytes[bit / 8 * w + i % w] = static_cast<std::uint8_t>(bytes[bit / 8 * w + i % w] | left << bit % 8);
      left >>= room;
      bit += room;
    }
}

CRIMP_HD std::uint16_t unpack(const std::uint8_t* bytes, std::uint32_t w, std::uint32_t bits, std::uint32_t i) {
  std::uint32_t code = 0;
  const std::uint32_t begin = i / w * bits;
  for (std::uint32_t bit = begin / 8 * 8; bit < begin + bits; bit += 8) {
    const std::uint32_t byte = bytes[bit / 8 * w + i % w];
    code |= bit >= begin ? byte << (bit - begin) : byte >> (begin - bit);
  }
  return static_cast<std::uint16_t>(code & ((1u << bits) - 1));
}

}  // namespace crimp::bit_pack
