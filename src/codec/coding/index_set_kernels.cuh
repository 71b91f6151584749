// Sets of elements of a piece in a block, as codec/coding/index_set.hpp has them. A warp looks at 32 elements at a
// time; what came before them is known from one scan over these words, because gaps that need skips end at a word's
// first element.
#pragma once
#include "codec/coding/index_set.hpp"
#include "codec/device/block.cuh"

namespace crimp::index_set {

inline constexpr std::uint32_t kWords = kPieceElements / device::kWarp;
static_assert(kWords <= device::kThreads);

// A set in shared memory. Bits behind the piece are 0, words behind it are not looked at.
struct Words {
  std::uint32_t bits[kWords];
  std::uint16_t rank[kWords];   // elements of the set before the word
  std::uint16_t next[kWords];   // behind the last of them, 0: there is none
  std::uint16_t skips[kWords];  // bytes of skips up to the word's first element
};

struct Size {
  std::uint32_t count, gap_bytes;
  __device__ bool bitmap(std::uint32_t n) const { return gap_bytes >= bitmap_bytes(n); }
  __device__ std::uint32_t bytes(std::uint32_t n) const {
    return bitmap(n) ? static_cast<std::uint32_t>(bitmap_bytes(n)) : gap_bytes;
  }
  __device__ std::uint32_t head(std::uint32_t n) const { return count | (bitmap(n) ? kBitmap : 0); }
};

// How many bytes of skips a gap has.
__device__ inline std::uint32_t skips_of(std::uint32_t gap) { return (gap / kSkip + kLongestSkip - 1) / kLongestSkip; }

// Makes the rest of a set whose bits are there, after a barrier. Ends with a barrier.
__device__ inline Size measure(Words& words, std::uint32_t n, device::BlockScratch& scratch) {
  const std::uint32_t w = threadIdx.x, bits = w < (n + device::kWarp - 1) / device::kWarp ? words.bits[w] : 0;
  // Upper half: behind the last element; lower half: elements.
  const std::uint32_t mine =
      bits ? (device::kWarp * w + device::kWarp - static_cast<std::uint32_t>(__clz(static_cast<int>(bits)))) << 16 |
                 static_cast<std::uint32_t>(__popc(bits))
           : 0;
  const auto join = [](std::uint32_t a, std::uint32_t b) {
    return ((a >> 16) < (b >> 16) ? b >> 16 : a >> 16) << 16 | ((a & 0xffff) + (b & 0xffff));
  };
  std::uint32_t all, skips;
  const std::uint32_t before = device::block_scan(mine, 0u, join, scratch, &all);
  const std::uint32_t own =
      bits
          ? skips_of(device::kWarp * w + static_cast<std::uint32_t>(__ffs(static_cast<int>(bits))) - 1 - (before >> 16))
          : 0;
  const std::uint32_t skips_before = device::block_offsets(own, scratch, &skips);
  if (w < kWords) {
    words.rank[w] = static_cast<std::uint16_t>(before);
    words.next[w] = static_cast<std::uint16_t>(before >> 16);
    words.skips[w] = static_cast<std::uint16_t>(skips_before + own);
  }
  __syncthreads();
  return {all & 0xffff, (all & 0xffff) + skips};
}

// work(i, j) for the j-th element of the set, i, in one thread each. A lane looks at a word for all of its warp, and
// words without an element are passed over. After a barrier.
template <class Work>
__device__ inline void for_set(const Words& words, std::uint32_t n, Work&& work) {
  static_assert(kWords <= device::kWarp * device::kWarps);
  const std::uint32_t own = device::warp() + device::kWarps * device::lane();
  const std::uint32_t of_lane = device::kWarp * own < n ? words.bits[own] : 0;
#pragma unroll 1
  for (std::uint32_t some = __ballot_sync(device::kAllLanes, of_lane != 0); some != 0; some &= some - 1) {
    const auto from = static_cast<std::uint32_t>(__ffs(static_cast<int>(some))) - 1,
               w = device::warp() + device::kWarps * from,
               bits = __shfl_sync(device::kAllLanes, of_lane, static_cast<int>(from)),
               below = bits & ((1u << device::lane()) - 1);
    if (bits >> device::lane() & 1)
      work(device::kWarp * w + device::lane(), words.rank[w] + static_cast<std::uint32_t>(__popc(below)));
  }
}

// x = fetch(j) and add(i, x) likewise, for at_once words at a time: what they fetch is on its way at once.
template <std::uint32_t at_once, class Fetch, class Add>
__device__ inline void for_set_ahead(const Words& words, std::uint32_t n, Fetch&& fetch, Add&& add) {
  const std::uint32_t own = device::warp() + device::kWarps * device::lane();
  const std::uint32_t of_lane = device::kWarp * own < n ? words.bits[own] : 0;
#pragma unroll 1
  for (std::uint32_t some = __ballot_sync(device::kAllLanes, of_lane != 0); some != 0;) {
    decltype(fetch(0u)) x[at_once] = {};
    std::uint32_t i[at_once];
#pragma unroll
    for (std::uint32_t b = 0; b < at_once; ++b, some &= some - 1) {
      const std::uint32_t from = some ? static_cast<std::uint32_t>(__ffs(static_cast<int>(some))) - 1 : 0,
                          w = device::warp() + device::kWarps * from,
                          all = __shfl_sync(device::kAllLanes, of_lane, static_cast<int>(from)), bits = some ? all : 0;
      i[b] = bits >> device::lane() & 1 ? device::kWarp * w + device::lane() : ~0u;
      if (i[b] != ~0u)
        x[b] = fetch(words.rank[w] + static_cast<std::uint32_t>(__popc(bits & ((1u << device::lane()) - 1))));
    }
#pragma unroll
    for (std::uint32_t b = 0; b < at_once; ++b)
      if (i[b] != ~0u) add(i[b], x[b]);
  }
}

// Writes the set's size.bytes(n) bytes to `to`, any address. After a barrier.
__device__ inline void encode_block(const Words& words, std::uint32_t n, const Size& size, std::uint8_t* to) {
  if (size.bitmap(n)) {
    device::copy_bytes(to, reinterpret_cast<const std::uint8_t*>(words.bits), size.bytes(n));
    return;
  }
  for_set(words, n, [&](std::uint32_t i, std::uint32_t j) {
    const std::uint32_t w = i / device::kWarp, below = words.bits[w] & ((1u << i % device::kWarp) - 1);
    std::uint8_t* at = to + j + words.skips[w];
    if (below != 0) {
      *at = static_cast<std::uint8_t>(
          i - (device::kWarp * w + device::kWarp - static_cast<std::uint32_t>(__clz(static_cast<int>(below)))));
      return;
    }
    std::uint32_t gap = i - words.next[w];
    for (at -= skips_of(gap); gap >= kSkip;) {
      const std::uint32_t units = gap / kSkip < kLongestSkip ? gap / kSkip : kLongestSkip;
      *at++ = static_cast<std::uint8_t>(kSkip - 1 + units);
      gap -= units * kSkip;
    }
    *at = static_cast<std::uint8_t>(gap);
  });
}

// Calls x = fetch(j) and add(i, x) for the j-th element of the set, i, in one thread each; false in every thread unless
// the bytes hold exactly the promised elements, all below n: then some calls may be missing, but i and j are in their
// ranges. count = count_of(head, n) > 0. Begins and ends with a barrier.
template <std::uint32_t at_once = 4, class Fetch, class Add>
__device__ inline bool decode_block(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t head, std::uint32_t n,
                                    Words& words, device::BlockScratch& scratch, Fetch&& fetch, Add&& add) {
  const std::uint32_t count = head & kCountMask;
  bool legal = true;
  __syncthreads();
  if (head & kBitmap) {
    if (bytes != bitmap_bytes(n)) return false;
    const std::uint32_t w = threadIdx.x;
    std::uint32_t bits = 0, total;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k)
      if (4 * w + k < bytes) bits |= static_cast<std::uint32_t>(in[4 * w + k]) << (8 * k);
    if (n < device::kWarp * (w + 1) && n > device::kWarp * w) legal = bits >> n % device::kWarp == 0;
    const std::uint32_t rank = device::block_offsets(static_cast<std::uint32_t>(__popc(bits)), scratch, &total);
    if (w < kWords) {
      words.bits[w] = bits;
      words.rank[w] = static_cast<std::uint16_t>(rank);
    }
    if (device::block_any(!legal) || total != count) return false;
    for_set_ahead<at_once>(words, n, fetch, add);
    __syncthreads();
    return true;
  }
  // A skip passes over at least 240 elements, and `n` is not passed.
  if (bytes < count || (bytes - count) * kSkip >= n || in[bytes - 1] >= kSkip) return false;
  std::uint64_t before = 0;  // upper half: elements passed and selected; lower half: selected
  for (std::uint32_t first = 0; first < bytes; first += 4 * device::kThreads) {
    const std::uint32_t from = first + 4 * threadIdx.x, mine = from >= bytes ? 0 : bytes - from < 4 ? bytes - from : 4;
    std::uint32_t gaps = 0;
    std::uint64_t own = 0, total;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k)
      if (k < mine) {
        const std::uint32_t b = in[from + k];
        gaps |= b << (8 * k);
        own += b < kSkip ? std::uint64_t{b + 1} << 32 | 1 : std::uint64_t{(b - (kSkip - 1)) * kSkip} << 32;
      }
    const std::uint64_t at = before + device::block_scan(own, std::uint64_t{0}, device::Plus(), scratch, &total);
    std::uint32_t next = static_cast<std::uint32_t>(at >> 32), found = static_cast<std::uint32_t>(at);
    decltype(fetch(0u)) x[4] = {};
    std::uint32_t i[4];
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      i[k] = ~0u;
      if (k < mine) {
        const std::uint32_t b = gaps >> (8 * k) & 0xff;
        next += b < kSkip ? b : (b - (kSkip - 1)) * kSkip;
        if (b >= kSkip) continue;
        if (next < n && found < count) i[k] = next, x[k] = fetch(found);
        else legal = false;
        ++next;
        ++found;
      }
    }
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k)
      if (i[k] != ~0u) add(i[k], x[k]);
    before += total;
  }
  return !device::block_any(!legal) && static_cast<std::uint32_t>(before) == count;
}

// Writes the indices of a set of gaps, count_of(head, n) > 0 of them, to `at`; false as decode_block(), and then what
// is written is below n as well. A warp does it.
__device__ inline bool decode_gaps(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t count, std::uint32_t n,
                                   std::uint16_t* at) {
  if (bytes < count || (bytes - count) * kSkip >= n) return false;
  constexpr std::uint32_t each = 4, some = each * device::kWarp, found_bits = 8;
  static_assert(some < 1u << found_bits && kSkip * kLongestSkip * some < 1u << (32 - found_bits));
  bool legal = true;
  std::uint32_t passed = 0, before = 0;
#pragma unroll 1
  for (std::uint32_t first = 0; first < bytes; first += some) {
    const std::uint32_t from = first + each * device::lane();
    std::uint32_t gaps[each], own = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < each; ++k) gaps[k] = from + k < bytes ? in[from + k] : 0;
#pragma unroll
    for (std::uint32_t k = 0; k < each; ++k)
      if (from + k < bytes)
        own += gaps[k] < kSkip ? (gaps[k] + 1) << found_bits | 1 : (gaps[k] - (kSkip - 1)) * kSkip << found_bits;
    const std::uint32_t up_to = device::warp_scan(own, device::Plus()), mine = up_to - own,
                        all = __shfl_sync(device::kAllLanes, up_to, device::kWarp - 1);
    std::uint32_t next = passed + (mine >> found_bits), found = before + (mine & ((1u << found_bits) - 1));
#pragma unroll
    for (std::uint32_t k = 0; k < each; ++k) {
      if (from + k >= bytes) continue;
      if (gaps[k] >= kSkip) {
        next += (gaps[k] - (kSkip - 1)) * kSkip;
        legal = legal && from + k + 1 < bytes;
        continue;
      }
      next += gaps[k];
      if (next < n && found < count) at[found] = static_cast<std::uint16_t>(next);
      else legal = false;
      ++next;
      ++found;
    }
    passed += all >> found_bits;
    before += all & ((1u << found_bits) - 1);
  }
  return legal && before == count;
}

}  // namespace crimp::index_set
