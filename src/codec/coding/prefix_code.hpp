// Entropy stage behind 3LC's zero runs: fixed prefix codes for densities, those of independent ternary values.
// WIRE_FORMAT.md, section 4.4.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace crimp::threelc {

inline constexpr int kDensities = 16;
inline constexpr int kLongestCode = 11;      // bits
inline constexpr std::uint8_t kPlain = 255;  // in place of a density: the bytes follow as they are
inline constexpr std::size_t kMostSymbols = 2048;
inline constexpr std::uint32_t kStreams = 4;
// Bytes ahead of the streams: density, bytes coded, bytes of all streams but the last.
inline constexpr std::uint32_t kFrame = 3 + 2 * (kStreams - 1);

// The code of one density: lengths of all 256 byte values, and their canonical codes, first bit lowest.
struct PrefixCode {
  std::uint8_t length[256];
  std::uint16_t code[256];
};
const PrefixCode& prefix_code(int density);  // 0..kDensities - 1
// Which density suits n coded bytes of `base` base bytes.
int density_of(std::size_t n, std::size_t base);

// Codes the n zero-run coded bytes of `base` base bytes, n <= base <= kMostSymbols, to `out`, which has room for n + 1
// bytes. Returns its bytes.
std::size_t prefix_encode(const std::uint8_t* coded, std::size_t n, std::size_t base, std::uint8_t* out);
// Restores the coded bytes to `coded`, which has room for kMostSymbols + 32; at most `base`. Returns their number, or
// base + 1 where the bytes are malformed.
std::size_t prefix_decode(std::span<const std::uint8_t> in, std::size_t base, std::uint8_t* coded);

}  // namespace crimp::threelc
