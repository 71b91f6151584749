// The entropy stage of 3LC in a block. Encoding is parallel: the places of all codes are prefix sums of their lengths.
// Decoding follows four streams, a lane each.
#pragma once
#include "codec/coding/prefix_code.hpp"
#include "codec/coding/prefix_code_tables.hpp"
#include "codec/device/block.cuh"

namespace crimp::threelc {

inline constexpr std::uint32_t kStreams = 4, kFrame = 3 + 2 * (kStreams - 1);
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
  std::uint16_t entry[1 << kLongestCode];  // symbol, and its length in the high byte
};

// Restores the symbols of `bytes` bytes in shared memory, aligned to 4 and with room for 4 more, to `coded`, at most
// `base`. Returns their number, or base + 1 where the bytes are malformed; the same in every thread. Begins and ends
// with a barrier.
__device__ inline std::uint32_t prefix_decode_block(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t base,
                                                    std::uint8_t* coded, PrefixDecodeTable& table) {
  const std::uint32_t malformed = base + 1;
  if (bytes < kFrame || bytes > base) return malformed;
  __syncthreads();
  const std::uint32_t density = in[0];
  if (density >= kDensities) return malformed;
  const auto number = [&](std::uint32_t i) { return static_cast<std::uint32_t>(in[1 + 2 * i] | in[2 + 2 * i] << 8); };
  const std::uint32_t n = number(0), last = bytes - kFrame, first_three = number(1) + number(2) + number(3);
  if (n > base || first_three > last) return malformed;
  for (std::uint32_t i = threadIdx.x; i < 1u << kLongestCode; i += device::kThreads)
    table.entry[i] = kDevicePrefix.densities[density].entry(__brev(i) >> (32 - kLongestCode));
  __syncthreads();
  bool good = true;
  if (threadIdx.x < kStreams) {
    const std::uint32_t s = threadIdx.x, size = s < 3 ? number(1 + s) : last - first_three;
    const std::uint32_t begin = kFrame + (s > 0 ? number(1) : 0) + (s > 1 ? number(2) : 0) + (s > 2 ? number(3) : 0);
    const auto* words = reinterpret_cast<const std::uint32_t*>(in);
    const std::uint32_t final_word = (bytes - 1) / 4;
    std::uint32_t at = 8 * begin;  // a malformed stream may run beyond its end, and then does not end where it should
    for (std::uint32_t i = s; i < n; i += 2 * kStreams) {
      const std::uint32_t w = at / 32 < final_word ? at / 32 : final_word;
      std::uint32_t window = __funnelshift_r(words[w], words[w < final_word ? w + 1 : w], at % 32);
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        if (i + k * kStreams >= n) break;
        const std::uint32_t entry = table.entry[window & ((1u << kLongestCode) - 1)];
        coded[i + k * kStreams] = static_cast<std::uint8_t>(entry);
        window >>= entry >> 8;
        at += entry >> 8;
      }
    }
    at -= 8 * begin;
    good = (at + 7) / 8 == size && (at % 8 == 0 || in[begin + size - 1] >> at % 8 == 0);
  }
  return device::block_any(!good) ? malformed : n;
}

}  // namespace crimp::threelc
