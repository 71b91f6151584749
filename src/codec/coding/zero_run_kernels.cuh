// Zero runs in a block: every byte knows from two scans where its run began and where its code goes, every code from
// one where its bytes go. Four bytes or codes a thread.
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

inline constexpr std::uint32_t kTogether = 4;  // payloads that are expanded behind the same two barriers
inline constexpr std::uint32_t kZeroWord = kZeroByte * 0x01010101u;

// A group of payloads while it is expanded. Barriers are the caller's: expand_begin of all threads, a barrier,
// expand_end, a barrier, and the base bytes stand there; a thread sets its word of each of them to kZeroWord again
// before it calls expand_begin once more.
struct Expansion {
  std::uint32_t warps[kTogether / 2][device::kWarps];  // lengths of two payloads each, in 16 bits
  alignas(16) std::uint32_t base[kTogether][device::kThreads];
};
static_assert(4 * device::kThreads * 2 * kLongestRun + kPieceElements / 5 < 1u << 16);

// The codes [first, first + 4) of `bytes` as a word, those behind the end as the longest run, in two words that may be
// on their way. What is in front of the codes may be read: three bytes at most.
struct RunCodes {
  std::uint32_t low, high, by;

  __device__ RunCodes(const std::uint8_t* codes, std::uint32_t bytes, std::uint32_t first) {
    const auto low_address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(codes));
    const std::uint32_t odd = low_address & 3;
    by = 8 * low_address;  // shifts look at its five bits only
    low = high = 0xffffffff;
    if (static_cast<int>(first) <= static_cast<int>(bytes + odd) - 8) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(codes - odd + first);
      low = words[0];
      high = words[1];
    } else if (first < bytes) {
      std::uint32_t word = 0xffffffff;
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (first + k < bytes) word ^= (codes[first + k] ^ 0xffu) << (8 * k);
      low = word << (8 * odd);
      high = __funnelshift_l(word, 0, by);
    }
  }
  __device__ std::uint32_t word() const { return __funnelshift_r(low, high, by); }
};

// Likewise of a word in shared memory, which has anything behind the end.
__device__ inline std::uint32_t first_codes(std::uint32_t word, std::uint32_t bytes, std::uint32_t first) {
  const std::uint32_t here = bytes > first ? bytes - first : 0;
  return here < 4 ? word | 0xffffffffu << (8 * here) : word;
}

// How many base bytes the codes of a word stand for: byte k has the sum of the codes up to k. Those that are no runs,
// bytes below 243, count as 242, which becomes 1.
__device__ inline std::uint32_t run_ends(std::uint32_t word) {
  constexpr std::uint32_t each = 0x01010101, before = kFirstRun - 2;
  const std::uint32_t runs =
      device::top_bits(((word & 0x7f * each) + (0x100 - kFirstRun) * each) & word);  // 0xff for each that is one
  return (((word & runs) | ((before + 1) * each & ~runs)) - before * each) * each;
}
static_assert(4 * kLongestRun < 256);

// ends: of a thread's words of two payloads. Returns what is in front of them in the warp, in 16 bits each.
__device__ inline std::uint32_t expand_begin(std::uint32_t pair, std::uint32_t even_ends, std::uint32_t odd_ends,
                                             Expansion& own) {
  const std::uint32_t lengths = __byte_perm(even_ends, odd_ends, 0x7733) & 0x00ff00ff,
                      inclusive = device::warp_sums(lengths);
  if (device::lane() == device::kWarp - 1) own.warps[pair][device::warp()] = inclusive;
  return inclusive - lengths;
}
// The warps that have any codes look at `slots` of them in each payload: behind a payload's last one these are longest
// runs, which stand for nothing. Added once more for the codes that there are, a run for each makes that sum.
__device__ inline std::uint32_t expand_goal(std::uint32_t n, std::uint32_t slots) { return n + kLongestRun * slots; }
// Puts the codes of a pair of payloads that are no runs in their places, of those alone that stand for n base bytes;
// codes: their numbers, in 16 bits each. Returned is what reaches the goal for these, likewise.
__device__ inline std::uint32_t expand_end(std::uint32_t pair, std::uint32_t before, const std::uint32_t (&words)[2],
                                           const std::uint32_t (&ends)[2], std::uint32_t codes, std::uint32_t goal,
                                           bool none, Expansion& own) {
  const std::uint32_t sum = device::lane() < device::kWarps ? own.warps[pair][device::lane()] : 0,
                      total = __reduce_add_sync(device::kAllLanes, sum) + kLongestRun * codes;
  if (none) return total;
  before += __reduce_add_sync(device::kAllLanes, device::lane() < device::warp() ? sum : 0);
#pragma unroll
  for (std::uint32_t p = 0; p < 2; ++p) {
    if ((total >> (16 * p) & 0xffff) != goal) continue;
    auto* const base = reinterpret_cast<std::uint8_t*>(own.base[2 * pair + p]);
    const std::uint32_t first = before >> (16 * p) & 0xffff;
    std::uint32_t to[4] = {first};
#pragma unroll
    for (std::uint32_t k = 1; k < 4; ++k)  // here, or each would be made in a branch of its own
      to[k] = device::afresh(__dp4a(ends[p], 1u << (8 * (k - 1)), first));
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k)
      if (const std::uint32_t code = __byte_perm(words[p], 0, 0x4440 + k); code < kFirstRun)
        base[to[k]] = static_cast<std::uint8_t>(code);
  }
  return total;
}

}  // namespace crimp::threelc
