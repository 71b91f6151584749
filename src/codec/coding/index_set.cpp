#include "codec/coding/index_set.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/coding/bitmap.hpp"
#include "codec/coding/set_bits.hpp"
#include "core/types.hpp"

namespace crimp::index_set {

Coded encode(const std::uint64_t* bits, std::uint64_t n, std::uint32_t count, std::uint8_t* out) {
  const std::size_t most = bitmap_bytes(n);
  const auto bitmap = [&] {
    std::memcpy(out, bits, most);
    return Coded{most, static_cast<std::uint16_t>(count | kBitmap)};
  };
  if (count >= most) return bitmap();
  // Four of every word whether it has them or not: how many could not be predicted.
  constexpr std::uint32_t kAtOnce = 4;
  std::uint16_t indices[bitmap_bytes(kPieceElements) + kAtOnce];
  for (std::uint32_t w = 0, found = 0; found < count; ++w) {
    std::uint64_t rest = bits[w];
    const auto here = static_cast<std::uint32_t>(std::popcount(rest));
    const auto next = [&](std::uint32_t i) {
      indices[found + i] = static_cast<std::uint16_t>(64 * w + static_cast<std::uint32_t>(std::countr_zero(rest)));
      rest &= rest - 1;
    };
    for (std::uint32_t i = 0; i < kAtOnce; ++i) next(i);
    for (std::uint32_t i = kAtOnce; i < here; ++i) next(i);
    found += here;
  }
  std::size_t used = 0;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (used + (count - i) >= most) return bitmap();
    std::uint32_t gap = indices[i] - next;
    for (; gap >= kSkip && used < most; gap -= kSkip * std::min(gap / kSkip, kLongestSkip))
      out[used++] = static_cast<std::uint8_t>(kSkip - 1 + std::min(gap / kSkip, kLongestSkip));
    if (used < most) out[used] = static_cast<std::uint8_t>(gap);
    ++used;
    next = indices[i] + 1u;
  }
  return used < most ? Coded{used, static_cast<std::uint16_t>(count)} : bitmap();
}

bool legal_bitmap(std::span<const std::uint8_t> in, std::uint16_t head, std::uint64_t n) {
  return in.size() == bitmap_bytes(n) && (n % 8 == 0 || in.back() >> n % 8 == 0) &&
         bitmap::count(in.data(), in.size()) == (head & kCountMask);
}

bool decode(std::span<const std::uint8_t> in, std::uint16_t head, std::uint64_t n, std::uint16_t* indices) {
  const std::uint32_t count = head & kCountMask;
  std::uint32_t found = 0;
  if (head & kBitmap) {
    if (!legal_bitmap(in, head, n)) return false;
    for (std::size_t at = 0; at < in.size(); ++at) {
      // Eight of every byte whether it has them or not, where there is room; the last ones one by one.
      unsigned rest = in[at];
      if (found + 8 <= count) {
        for (std::size_t i = 0; i < 8; ++i)
          indices[found + i] = static_cast<std::uint16_t>(8 * at + kSetBits.places[rest][i]);
        found += static_cast<std::uint32_t>(std::popcount(rest));
        continue;
      }
      for (; rest; rest &= rest - 1)
        indices[found++] = static_cast<std::uint16_t>(8 * at + static_cast<std::size_t>(std::countr_zero(rest)));
    }
    return true;
  }
  if (in.size() < count || in.back() >= kSkip) return false;
  std::uint32_t next = 0;
  for (const std::uint8_t b : in) {
    if (b >= kSkip) {
      next += (b - (kSkip - 1)) * kSkip;
      continue;
    }
    next += b;
    if (next >= n || found == count) return false;
    indices[found++] = static_cast<std::uint16_t>(next++);
  }
  return found == count;
}

}  // namespace crimp::index_set
