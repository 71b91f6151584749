// The key of a rank among some keys, in a block: a digit of 11 bits at a time from the topmost on, until few keys are
// left, which are compared with one another.
#pragma once
#include "codec/device/block.cuh"

namespace crimp::select {

inline constexpr std::uint32_t kDigitBits = 11, kBins = 1 << kDigitBits;

// Of a rank among the keys that bins hold: its bin, which of those in the bin it is, counted from 1, and how many these
// are. left 0: there are not so many.
struct Digit {
  std::uint32_t digit, left, count;
};
inline constexpr std::uint32_t kFew = 256;  // keys that are compared with one another and not sorted into bins

struct RadixShared {
  device::BlockScratch scratch;
  Digit found[2];
  std::uint32_t places[2], key[2], above[2], equal[2];
  alignas(16) std::uint32_t bins[kBins];  // or two lists of kFew
};
static_assert(2 * kFew <= kBins && kBins == 4 * device::kThreads);

// The Digits of some ranks, in every thread. Sets the bins to zero. After a barrier, ends with one.
template <int ranks>
__device__ inline void find_digits(const std::uint32_t (&left)[ranks], RadixShared& shared, Digit (&digits)[ranks]) {
  const std::uint32_t first = kBins - 4 - 4 * threadIdx.x;  // a thread's bins are [first, first + 4)
  auto* const vector = reinterpret_cast<uint4*>(shared.bins + first);
  const uint4 bins = *vector;
  *vector = make_uint4(0, 0, 0, 0);
  if (threadIdx.x < ranks) {
    const std::uint32_t r = threadIdx.x;
    shared.found[r] = {0, 0, 0};
    shared.places[r] = shared.key[r] = shared.above[r] = shared.equal[r] = 0;
  }
  const std::uint32_t sum = bins.x + bins.y + bins.z + bins.w;
  std::uint32_t total;
  const std::uint32_t above = device::block_offsets(sum, shared.scratch, &total);
#pragma unroll
  for (int r = 0; r < ranks; ++r) {
    if (above >= left[r] || left[r] > above + sum) continue;
    const std::uint32_t w = left[r] - above, z = w - bins.w, y = z - bins.z, x = y - bins.y;
    shared.found[r] = w <= bins.w   ? Digit{first + 3, w, bins.w}
                      : z <= bins.z ? Digit{first + 2, z, bins.z}
                      : y <= bins.y ? Digit{first + 1, y, bins.y}
                                    : Digit{first, x, bins.x};
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ranks; ++r) digits[r] = shared.found[r];
}

// For one or two ranks, counted from 1 at the largest: the key of that rank among some keys of [1, 2^bits), which of
// those that equal it that is and how many these are, in every thread; left 0: there are not so many keys.
// for_keys(work) calls work(key) for each key, in any thread; it is called for each digit until few keys are left, and
// once for these. After a barrier.
struct Found {
  std::uint32_t key, left, equal;
};
template <int ranks, class ForKeys>
__device__ inline void find_keys(const std::uint32_t (&wanted)[ranks], std::uint32_t bits, RadixShared& shared,
                                 Found (&found)[ranks], ForKeys&& for_keys) {
  static_assert(ranks == 1 || ranks == 2);
  reinterpret_cast<uint4*>(shared.bins)[threadIdx.x] = make_uint4(0, 0, 0, 0);
  std::uint32_t top[ranks];  // bits of the key that are not known
#pragma unroll
  for (int r = 0; r < ranks; ++r) {
    found[r] = {0, wanted[r], ~0u};
    top[r] = wanted[r] ? bits : 0;
  }
#pragma unroll 1
  for (;;) {
    std::uint32_t known = 0, from = 0;
    bool open = false;
#pragma unroll
    for (int r = 0; r < ranks; ++r) {
      open = open || top[r] != 0;
      if (top[r] != 0 && found[r].equal > kFew) known = found[r].key, from = top[r];
    }
    if (!open) return;
    const bool few = from == 0;
    const std::uint32_t low = from > kDigitBits ? from - kDigitBits : 0;
    __syncthreads();
    for_keys([&](std::uint32_t key) {
      if (!few) {
        if ((key ^ known) >> from == 0) atomicAdd(&shared.bins[key >> low & (kBins - 1)], 1u);
        return;
      }
#pragma unroll
      for (int r = 0; r < ranks; ++r)
        if (top[r] != 0 && (key ^ found[r].key) >> top[r] == 0)
          shared.bins[r * kFew + atomicAdd(&shared.places[r], 1u)] = key;
    });
    __syncthreads();
    if (few) break;
    std::uint32_t left[ranks];
    Digit digits[ranks];
#pragma unroll
    for (int r = 0; r < ranks; ++r) left[r] = top[r] == from && found[r].key == known ? found[r].left : 0;
    find_digits(left, shared, digits);
#pragma unroll
    for (int r = 0; r < ranks; ++r)
      if (left[r] != 0) {
        found[r] = {known | digits[r].digit << low, digits[r].left, digits[r].count};
        top[r] = digits[r].left ? low : 0;
      }
  }
  // A thread has a key of one list. What is looked for is the largest that `left` of the list's keys reach; behind a
  // list there are zeros.
  const bool second = ranks == 2 && threadIdx.x >= kFew;
  const std::uint32_t r = second ? 1 : 0, at = threadIdx.x - r * kFew,
                      left = second ? found[ranks - 1].left : found[0].left,
                      n = (second ? top[ranks - 1] : top[0]) == 0 ? 0
                          : second                                ? found[ranks - 1].equal
                                                                  : found[0].equal;
  const std::uint32_t* const list = shared.bins + r * kFew;
  const std::uint32_t mine = at < n ? list[at] : 0;
  std::uint32_t reached = 0;
  if (mine != 0)
#pragma unroll 4
    for (std::uint32_t j = 0; j < n; j += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(list + j);
      reached += (four.x >= mine) + (four.y >= mine) + (four.z >= mine) + (four.w >= mine);
    }
  const std::uint32_t best = __reduce_max_sync(device::kAllLanes, mine != 0 && reached >= left ? mine : 0);
  if (device::lane() == 0 && best != 0) atomicMax(&shared.key[r], best);
  __syncthreads();
  const std::uint32_t key = shared.key[r];
  const int above = __popc(__ballot_sync(device::kAllLanes, mine > key)),
            equal = __popc(__ballot_sync(device::kAllLanes, mine != 0 && mine == key));
  if (device::lane() == 0 && n != 0) {
    atomicAdd(&shared.above[r], static_cast<std::uint32_t>(above));
    atomicAdd(&shared.equal[r], static_cast<std::uint32_t>(equal));
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ranks; ++i)
    if (top[i] != 0) found[i] = {shared.key[i], found[i].left - shared.above[i], shared.equal[i]};
}
template <class ForKeys>
__device__ inline Found find_key(std::uint32_t wanted, std::uint32_t bits, RadixShared& shared, ForKeys&& for_keys) {
  Found found[1];
  find_keys<1>({wanted}, bits, shared, found, for_keys);
  return found[0];
}

}  // namespace crimp::select
