// A set of elements of a piece as bytes: a bitmap, or gaps where those take fewer bytes. WIRE_FORMAT.md, section 4.18.
//
// Gaps are bytes whose running sum is the index, so that a prefix sum decodes them in parallel: a byte b < 240 passes
// over b elements and selects the next one; b >= 240 passes over (b - 239) * 240.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/host_device.hpp"

namespace crimp::index_set {

inline constexpr std::uint32_t kSkip = 240, kLongestSkip = 16;
inline constexpr std::uint32_t kCountMask = 0x3fff,
                               kBitmap = 0x8000;  // the set's head, a uint16: elements, and bit 15 for a bitmap

CRIMP_HD std::size_t bitmap_bytes(std::uint64_t n) { return static_cast<std::size_t>((n + 7) / 8); }

struct Coded {
  std::size_t bytes;  // at most bitmap_bytes(n)
  std::uint16_t head;
};
// The `count` >= 1 elements whose bits are set, of n; bits beyond n are zero and fill the last word. Writes to `out`,
// which has room for bitmap_bytes(n).
Coded encode(const std::uint64_t* bits, std::uint64_t n, std::uint32_t count, std::uint8_t* out);

// The elements that a head promises, or 0 where it is malformed.
CRIMP_HD std::uint32_t count_of(std::uint16_t head, std::uint64_t n) {
  const std::uint32_t count = head & kCountMask;
  return count > n || (head & ~(kCountMask | kBitmap)) ? 0 : count;
}
// Whether a head with kBitmap is followed by a bitmap of as many elements as it promises, all below n.
bool legal_bitmap(std::span<const std::uint8_t> in, std::uint16_t head, std::uint64_t n);
// Restores the indices in increasing order. False unless `in` holds exactly the promised elements, all below n.
bool decode(std::span<const std::uint8_t> in, std::uint16_t head, std::uint64_t n, std::uint16_t* indices);

}  // namespace crimp::index_set
