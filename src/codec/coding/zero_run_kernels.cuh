// Zero runs in a block: every byte knows from two scans where its run began and where its code goes. Four bytes a
// thread.
#pragma once
#include "codec/device/block.cuh"
#include "codec/threelc/threelc.hpp"

namespace crimp::threelc {

static_assert(4 * device::kThreads >= kPieceElements / 5);

// Codes n base bytes, aligned to 4, to `coded` in shared memory and returns the number of code bytes in every thread.
// Begins and ends with a barrier.
__device__ inline std::uint32_t zero_run_encode_block(const std::uint8_t* base, std::uint32_t n, std::uint8_t* coded,
                                                      device::BlockScratch& scratch) {
  __syncthreads();
  const std::uint32_t first = 4 * threadIdx.x, mine = first >= n ? 0 : n - first < 4 ? n - first : 4;
  const std::uint32_t word =
      mine == 0 ? 0 : *reinterpret_cast<const std::uint32_t*>(base + first);  // bytes behind n are not looked at
  const auto zero = [&](std::uint32_t k) { return (word >> (8 * k) & 0xff) == kZeroByte; };
  std::uint32_t behind = 0;  // the place behind the last byte that is not zero
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    if (k < mine && !zero(k)) behind = first + k + 1;
  std::uint32_t total;
  std::uint32_t begin = device::block_scan(behind, 0u, device::Greatest(), scratch, &total);
  const bool goes_on = first + 4 < n && base[first + 4] == kZeroByte;
  std::uint32_t codes = 0, count = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k) {
    if (k >= mine) break;
    std::uint32_t code = word >> (8 * k) & 0xff;
    bool put = true;
    if (zero(k)) {
      const std::uint32_t run = (first + k - begin) % kLongestRun + 1;  // of 1..14, with the 14s before it coded
      const bool last = first + k + 1 == n || (k < 3 ? !zero(k + 1) : !goes_on);
      put = run == kLongestRun || last;
      code = run == 1 ? kZeroByte : kFirstRun + run - 2;
    } else {
      begin = first + k + 1;
    }
    if (put) codes |= code << (8 * count++);
  }
  const std::uint32_t to = device::block_offsets(count, scratch, &total);
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    if (k < count) coded[to + k] = static_cast<std::uint8_t>(codes >> (8 * k));
  __syncthreads();
  return total;
}

// Restores n base bytes from `bytes` coded ones, both in shared memory and apart; false in every thread where the code
// stands for more or fewer. Begins and ends with a barrier.
__device__ inline bool zero_run_decode_block(const std::uint8_t* coded, std::uint32_t bytes, std::uint8_t* base,
                                             std::uint32_t n, device::BlockScratch& scratch) {
  if (bytes > n) return false;
  for (std::uint32_t i = threadIdx.x; i < (n + 3) / 4; i += device::kThreads)
    reinterpret_cast<std::uint32_t*>(base)[i] = kZeroByte * 0x01010101u;
  __syncthreads();
  const std::uint32_t first = 4 * threadIdx.x, mine = first >= bytes ? 0 : bytes - first < 4 ? bytes - first : 4;
  std::uint32_t length = 0, total;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    if (k < mine) length += coded[first + k] < kFirstRun ? 1 : coded[first + k] - (kFirstRun - 2);
  std::uint32_t to = device::block_offsets(length, scratch, &total);
  if (total != n) return false;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k) {
    if (k >= mine) break;
    const std::uint32_t code = coded[first + k];
    if (code < kFirstRun) base[to] = static_cast<std::uint8_t>(code);
    to += code < kFirstRun ? 1 : code - (kFirstRun - 2);
  }
  __syncthreads();
  return true;
}

}  // namespace crimp::threelc
