// The entropy stage of 3LC in a block. Encoding is parallel: the places of all codes are prefix sums of their lengths.
// Decoding gives a thread 32 bits of a stream: it follows the codes from a guess on, and again from where its left
// neighbour's last code turned out to end, until it meets its earlier path (codes synchronise themselves: Weissenberger
// and Schmidt, "Massively Parallel Huffman Decoding on GPUs", ICPP 2018). A turn settles another word of each warp, a
// round of turns another warp: 7 rounds of 33 turns are the most, for 512 codes of 11 bits.
#pragma once
#include <cstddef>

#include "codec/coding/prefix_code.hpp"
#include "codec/coding/prefix_code_tables.hpp"
#include "codec/device/block.cuh"

namespace crimp::threelc {

static_assert(kMostSymbols <= kStreams * device::kThreads);

static __device__ const DensityTables kDevicePrefix = density_tables();

__device__ inline std::uint32_t density_of_block(std::uint32_t n, std::uint32_t base) {
  std::uint32_t d = 0;
  while (d + 1 < kDensities &&
         static_cast<double>(2 * n) > (kDevicePrefix.fill[d] + kDevicePrefix.fill[d + 1]) * static_cast<double>(base))
    ++d;
  return d;
}

// Codes n symbols of `base` base bytes to `to`, shared memory aligned to 4 with room for (n + 4) / 4 words, unless that
// would not be shorter than n + 1 bytes: returns 0 then, else the bytes. The same in every thread. Begins and ends with
// a barrier.
__device__ inline std::uint32_t prefix_encode_block(const std::uint8_t* coded, std::uint32_t n, std::uint32_t base,
                                                    std::uint8_t* to, device::BlockScratch& scratch) {
  auto* words = reinterpret_cast<std::uint32_t*>(to);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < (n + 4) / 4; i += device::kThreads) words[i] = 0;
  const std::uint32_t density = density_of_block(n, base), first = kStreams * threadIdx.x;
  std::uint32_t code[kStreams];  // first bits, and the length above them
  std::uint64_t lengths = 0, total;
#pragma unroll
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    code[s] = first + s < n ? kDevicePrefix.densities[density].code[coded[first + s]] : 0;
    lengths |= static_cast<std::uint64_t>(code[s] >> kLongestCode) << (16 * s);
  }
  const std::uint64_t before = device::block_scan(lengths, std::uint64_t{0}, device::Plus(), scratch, &total);
  std::uint32_t begin = kFrame, bytes[kStreams];  // of each stream
#pragma unroll
  for (std::uint32_t s = 0; s < kStreams; ++s)
    bytes[s] = (static_cast<std::uint32_t>(total >> (16 * s) & 0xffff) + 7) / 8;
  const std::uint32_t used = kFrame + bytes[0] + bytes[1] + bytes[2] + bytes[3];
  if (used >= n + 1) return 0;
#pragma unroll
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    const std::uint32_t at = 8 * begin + static_cast<std::uint32_t>(before >> (16 * s) & 0xffff),
                        bits = code[s] & ((1u << kLongestCode) - 1);
    if (bits != 0) {
      atomicOr(&words[at / 32], bits << at % 32);
      if (at % 32 > 32 - kLongestCode && bits >> (32 - at % 32) != 0)
        atomicOr(&words[at / 32 + 1], bits >> (32 - at % 32));
    }
    begin += bytes[s];
  }
  if (threadIdx.x == 0) {
    atomicOr(&words[0], density | n << 8 | bytes[0] << 24);
    atomicOr(&words[1], bytes[0] >> 8 | bytes[1] << 8 | bytes[2] << 24);
    atomicOr(&words[2], bytes[2] >> 8);
  }
  __syncthreads();
  return used;
}

struct PrefixDecodeTable {
  // A density's. Symbol, and its length in the high byte; where codes begin, and how many bits they have above that.
  alignas(16) std::uint16_t entry[1 << kLongestCode], steps[1 << kLongestCode];
};

// 32 bits of a stream, as a thread sees them: the codes that begin there.
struct PrefixSpan {
  std::uint32_t low, high;     // the bits, and those behind them
  std::uint32_t begins, over;  // a bit for each that begins a code; how far behind the 32 bits the last code ends

  __device__ std::uint32_t window(std::uint32_t at) const {
    return __funnelshift_r(low, high, at) & ((1u << kLongestCode) - 1);
  }
  // The first code begins at bit `at` < 32: follows the codes, those of a window at once, to the end, or to one that
  // was known to begin one.
  __device__ void follow(std::uint32_t at, const PrefixDecodeTable& table) {
    std::uint32_t met = 0;
    while (at < 32) {
      const std::uint32_t steps = table.steps[window(at)], in_window = steps & ((1u << kLongestCode) - 1),
                          here = in_window << at, known = here & begins;
      if (known != 0) {
        const std::uint32_t first = known & -known;
        begins = met | (here & (first - 1)) | (begins & -first);
        return;
      }
      met |= here;
      const std::uint32_t behind = at + (steps >> kLongestCode), next = in_window >> (31 - at) >> 1;
      at = next != 0 ? 31 + static_cast<std::uint32_t>(__ffs(static_cast<int>(next))) : behind;
    }
    begins = met;
    over = at - 32;
  }
};

// The stream that a thread has a span of, if it is within `spans`.
struct PrefixStream {
  std::uint32_t stream, symbols, begin, size, first;  // bytes; first: the thread with its first span
};

// Restores the symbols of `bytes` bytes in shared memory, aligned to 4 and with room for 4 more, to `coded`, at most
// `base`. Returns their number, or base + 1 where the bytes are malformed; the same in every thread. Begins and ends
// with a barrier.
__device__ inline std::uint32_t prefix_decode_block(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t base,
                                                    std::uint8_t* coded, PrefixDecodeTable& table,
                                                    device::BlockScratch& scratch) {
  static_assert((kMostSymbols - kFrame + 3 * kStreams) / 4 <= device::kThreads, "a thread has one span");
  const std::uint32_t malformed = base + 1;
  if (bytes < kFrame || bytes > base) return malformed;
  __syncthreads();
  const std::uint32_t density = in[0];
  if (density >= kDensities) return malformed;
  const auto number = [&](std::uint32_t i) { return static_cast<std::uint32_t>(in[1 + 2 * i] | in[2 + 2 * i] << 8); };
  const std::uint32_t n = number(0), last = bytes - kFrame, first_three = number(1) + number(2) + number(3);
  if (n > base || first_three > last) return malformed;
  device::copy_bytes(reinterpret_cast<std::uint8_t*>(table.entry),
                     reinterpret_cast<const std::uint8_t*>(kDevicePrefix.densities[density].decode), sizeof table);
  static_assert(offsetof(DensityTable, steps) == offsetof(DensityTable, decode) + sizeof table.entry);
  PrefixStream mine{};
  std::uint32_t spans = 0, end = kFrame;
  bool good = true;
#pragma unroll
  for (std::uint32_t s = 0; s < kStreams; ++s) {
    const std::uint32_t size = s + 1 < kStreams ? number(1 + s) : last - first_three, symbols = (n + 3 - s) / kStreams;
    // So many bytes hold so many codes of 1 to kLongestCode bits: a stream without bytes has no symbols.
    good = good && (symbols + 7) / 8 <= size && size <= (kLongestCode * symbols + 7) / 8;
    if (threadIdx.x >= spans) mine = {s, symbols, end, size, spans};
    spans += (size + 3) / 4;
    end += size;
  }
  if (!good) return malformed;
  const bool live = threadIdx.x < spans, opens = threadIdx.x == mine.first;
  const std::uint32_t bit = 32 * (threadIdx.x - mine.first);  // of its stream
  PrefixSpan span{};
  if (live) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(in);
    const std::uint32_t at = 8 * mine.begin + bit, w = at / 32, final_word = (bytes - 1) / 4;
    const std::uint32_t word = words[w], next = words[min(w + 1, final_word)], third = words[min(w + 2, final_word)];
    span.low = __funnelshift_r(word, next, at % 32);  // what is behind a stream decides nothing
    span.high = __funnelshift_r(next, third, at % 32);
  }
  __syncthreads();
  if (live) span.follow(0, table);
  std::uint32_t from = 0, left = 0;  // where the thread began to follow; where the last warp ended
  do {
    bool moves;
    do {
      const std::uint32_t before = __shfl_up_sync(device::kAllLanes, span.over, 1), begin = opens ? 0
                                                                                            : device::lane() == 0
                                                                                                ? left
                                                                                                : before;
      moves = live && begin != from;
      if (moves) span.follow(from = begin, table);
    } while (__any_sync(device::kAllLanes, moves));
    if (device::lane() == device::kWarp - 1) scratch.warps[device::warp()] = span.over;
    __syncthreads();
    left = device::warp() == 0 ? 0 : static_cast<std::uint32_t>(scratch.warps[device::warp() - 1]);
  } while (device::block_any(live && !opens && device::lane() == 0 && left != from));

  const std::uint64_t codes = static_cast<std::uint64_t>(__popc(span.begins)) << (16 * mine.stream);
  std::uint64_t total;
  std::uint32_t i = static_cast<std::uint32_t>(
      device::block_scan(codes, std::uint64_t{0}, device::Plus(), scratch, &total) >> (16 * mine.stream) & 0xffff);
#pragma unroll
  for (std::uint32_t s = 0; s < kStreams; ++s) good = good && (total >> (16 * s) & 0xffff) >= (n + 3 - s) / kStreams;
  if (live && i < mine.symbols) {
    std::uint32_t behind = 0;
    for (std::uint32_t rest = span.begins; rest != 0 && i < mine.symbols; rest &= rest - 1, ++i) {
      const std::uint32_t at = static_cast<std::uint32_t>(__ffs(static_cast<int>(rest))) - 1,
                          entry = table.entry[span.window(at)];
      coded[kStreams * i + mine.stream] = static_cast<std::uint8_t>(entry);
      behind = bit + at + (entry >> 8);
    }
    if (i == mine.symbols)
      good = good && (behind + 7) / 8 == mine.size &&
             (behind % 8 == 0 || in[mine.begin + mine.size - 1] >> behind % 8 == 0);
  }
  return device::block_any(!good) ? malformed : n;
}

}  // namespace crimp::threelc
