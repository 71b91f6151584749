// One piece of 3LC, element by element, written from WIRE_FORMAT.md section 4.4 alone.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace crimp::test {

inline int threelc_quantized(float a, float scale) {
  const float half = scale / 2;
  if (a > half) return 1;
  if (a < -half) return -1;
  return 0;
}

struct ThreeLcTile {
  std::size_t begin, count, width;
};
inline std::vector<ThreeLcTile> threelc_tiles(std::size_t n) {
  std::vector<ThreeLcTile> tiles;
  for (std::size_t at = 0; at < n; at += 160) {
    const std::size_t m = n - at < 160 ? n - at : 160;
    tiles.push_back({at, m, (m + 4) / 5});
  }
  return tiles;
}

inline std::vector<std::uint8_t> threelc_base_bytes(std::span<const float> a, float scale) {
  std::vector<std::uint8_t> bytes;
  for (const auto& tile : threelc_tiles(a.size()))
    for (std::size_t i = 0; i < tile.width; ++i) {
      const auto q = [&](std::size_t k) { return k < tile.count ? threelc_quantized(a[tile.begin + k], scale) : 0; };
      const std::size_t w = tile.width;
      bytes.push_back(static_cast<std::uint8_t>(121 + 81 * q(i) + 27 * q(i + w) + 9 * q(i + 2 * w) + 3 * q(i + 3 * w) +
                                                q(i + 4 * w)));
    }
  return bytes;
}

inline std::vector<std::uint8_t> threelc_run_coded(const std::vector<std::uint8_t>& base) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < base.size();) {
    if (base[i] != 121) {
      out.push_back(base[i++]);
      continue;
    }
    std::size_t k = 0;
    while (i < base.size() && base[i] == 121) ++k, ++i;
    for (std::size_t j = 0; j < k / 14; ++j) out.push_back(255);
    const std::size_t r = k % 14;
    if (r == 1) out.push_back(121);
    if (r >= 2) out.push_back(static_cast<std::uint8_t>(243 + (r - 2)));
  }
  return out;
}

// The entropy stage, for `base` base bytes, and back.
std::vector<std::uint8_t> threelc_prefix_coded(const std::vector<std::uint8_t>& symbols, std::size_t base);
std::vector<std::uint8_t> threelc_prefix_expanded(std::span<const std::uint8_t> in);

// Nothing where the code does not stand for exactly `base_bytes` bytes.
inline std::optional<std::vector<std::uint8_t>> threelc_expanded(std::span<const std::uint8_t> coded,
                                                                 std::size_t base_bytes) {
  std::vector<std::uint8_t> base;
  for (const std::uint8_t b : coded) {
    if (b <= 242) {
      base.push_back(b);
    } else {
      base.insert(base.end(), static_cast<std::size_t>(b - 243 + 2), std::uint8_t{121});
    }
  }
  if (base.size() != base_bytes) return {};
  return base;
}

inline std::vector<float> threelc_values(const std::vector<std::uint8_t>& base, std::size_t n, float scale) {
  std::vector<float> values(n);
  std::size_t at = 0;
  for (const auto& tile : threelc_tiles(n))
    for (std::size_t i = 0; i < tile.width; ++i) {
      int byte = base[at++];
      for (std::size_t j = 5; j-- > 0; byte /= 3) {  // the last digit is the least one
        const std::size_t k = i + j * tile.width;
        if (k < tile.count) values[tile.begin + k] = scale * static_cast<float>(byte % 3 - 1);
      }
    }
  return values;
}

}  // namespace crimp::test
