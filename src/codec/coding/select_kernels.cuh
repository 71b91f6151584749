// The k largest magnitudes of every group of a chunk, exactly, equal ones by index (codec/coding/select.hpp on a GPU):
// a radix selection. Each pass counts one digit of the magnitudes that begin like the one looked for, in histograms of
// integers, whose order of adding does not show; a block per piece counts, a block per group then fixes the digit.
// Everything stays in device memory. Groups that are settled (`left` is 0) cost an empty block.
//
// sides: 1: magnitudes are ranked. 2: the positive elements and the negative ones are, each on their own (adaq): a
// group then has two searches with bins and blocks of their own, the positives' first, and a block per piece counts for
// both; how many elements are looked for is a share of those that the first digit's bins hold.
#pragma once
#include "codec/device/piece_kernels.cuh"
#include "codec/sparse/sparse.hpp"

namespace crimp::select {

inline constexpr std::uint32_t kBins = 2048, kInfinity = 0x7f800000;
// The digits of a magnitude's 31 bits, from the top; shift of digit kDigits is what is above the first.
inline constexpr int kDigits = 3;
CRIMP_HD constexpr std::uint32_t shift_of(int digit) { return digit == 0 ? 20 : digit == 1 ? 10 : 0; }
CRIMP_HD constexpr std::uint32_t bins_of(int digit) { return digit == 0 ? kBins : 1024; }

// How far a group is. Counts fit 32 bits: a chunk has at most 2^30 elements.
struct Search {
  std::uint32_t left;  // elements still to be found among those that begin like `key`; 0: the Selection is final
  std::uint32_t key;   // the digits so far, the others 0
};

// The arrays of a selection, in device memory.
struct Scratch {
  Search* searches;      // of each side of each group
  std::uint32_t* equal;  // of each piece: elements that equal the threshold, 16 bits for each side
  std::uint32_t* bins;   // kBins of each side of each group; zeros between passes

  static std::size_t round(std::size_t n) { return (n + 255) / 256 * 256; }
  static std::size_t bytes(const ChunkTable& t, std::uint32_t sides = 1) {
    const std::size_t searches = std::size_t{sides} * t.group_count;
    return round(searches * sizeof(Search)) + round(t.piece_count * sizeof(std::uint32_t)) +
           round(searches * kBins * sizeof(std::uint32_t));
  }
  Scratch(const ChunkTable& t, void* scratch, std::uint32_t sides = 1) {
    auto* at = static_cast<std::uint8_t*>(scratch);
    searches = reinterpret_cast<Search*>(at);
    equal = reinterpret_cast<std::uint32_t*>(at += round(std::size_t{sides} * t.group_count * sizeof(Search)));
    bins = reinterpret_cast<std::uint32_t*>(at + round(t.piece_count * sizeof(std::uint32_t)));
  }
};

__device__ inline std::uint32_t key_of(float a) { return __float_as_uint(a) & 0x7fffffffu; }
template <std::uint32_t sides>
__device__ inline std::uint32_t side_of(float a) {
  return sides == 1 ? 0 : __float_as_uint(a) >> 31;
}

// The searches of a group, in registers.
template <std::uint32_t sides>
struct Searches {
  Search up, down;
  __device__ Searches(const Search* searches, std::uint32_t group)
      : up(searches[sides * group]), down(sides == 1 ? Search{} : searches[sides * group + sides - 1]) {}
  __device__ bool settled() const { return up.left == 0 && down.left == 0; }
  __device__ Search of(float a) const { return side_of<sides>(a) == 0 ? up : down; }
};

// work(n, i, a) for all elements of a piece, as they will be encoded: n of them from i on, n a constant of 1 or 4; a
// thread's in rising order.
template <class Work>
__device__ inline void for_vectors(const device::Source& source, const PieceEntry& piece, Work&& work) {
  const GroupEntry& g = source.table.groups[piece.group];
  device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
    using Elements = device::Elements<entry>;
    const Elements elements(source, g, piece.offset - g.offset);
    constexpr int at_once = entry == device::Entry::corrected ? 1 : 2;
    typename Elements::Parts parts[at_once];
    device::in_batches<at_once>(
        piece.count, elements.aligned(),
        [&](auto n, int j, std::size_t i) { elements.template load_parts<n>(parts[j], i); },
        [&](auto n, int j, std::size_t i) {
          device::Floats<4> a;
#pragma unroll
          for (int k = 0; k < n; ++k) a.v[k] = parts[j].a(source.policy, k);
          work(n, i, a);
        });
  });
}
// work(a) for each of them.
template <class Work>
__device__ inline void for_values(const device::Source& source, const PieceEntry& piece, Work&& work) {
  for_vectors(source, piece, [&](auto n, std::size_t, const device::Floats<4>& a) {
#pragma unroll
    for (int k = 0; k < n; ++k) work(a.v[k]);
  });
}

// A thread per group. Where all that is not zero is selected no search is needed.
template <std::uint32_t threads, std::uint32_t sides>
__global__ void __launch_bounds__(threads)
    begin_search(ChunkTable table, float ratio, Search* searches, Selection* selections) {
  const std::uint32_t g = blockIdx.x * threads + threadIdx.x;
  if (g >= table.group_count) return;
  const std::uint64_t count = table.groups[g].count, k = share_of(ratio, count);
  if constexpr (sides == 1) searches[g] = {k < count ? static_cast<std::uint32_t>(k) : 0, 0};
  else searches[2 * g] = searches[2 * g + 1] = {1, 0};  // what is looked for is known with the first digit
  selections[g] = {};
}

// A block per piece: counts its digits into the bins of its group. Zeros are never selected, so not counted.
template <int digit, std::uint32_t sides>
__global__ void __launch_bounds__(device::kThreads, 4)
    count_digits(device::Source source, const Search* searches, std::uint32_t* bins) {
  auto* own = &device::shared_memory<std::uint32_t>();
  const PieceEntry piece = source.table.pieces[blockIdx.x];
  const Searches<sides> search(searches, piece.group);
  if (search.settled()) return;
  constexpr std::uint32_t shift = shift_of(digit), n = bins_of(digit);
  for (std::uint32_t b = threadIdx.x; b < sides * n; b += device::kThreads) own[b] = 0;
  __syncthreads();
  for_values(source, piece, [&](float a) {
    const std::uint32_t key = key_of(a);
    if (key != 0 && ((key ^ search.of(a).key) >> shift) < n)
      atomicAdd(&own[side_of<sides>(a) * n + (key >> shift & (n - 1))], 1u);
  });
  __syncthreads();
  bins += std::size_t{piece.group} * sides * kBins;
  for (std::uint32_t b = threadIdx.x; b < sides * n; b += device::kThreads)
    if (own[b] != 0) atomicAdd(&bins[b / n * kBins + b % n], own[b]);
}

// The digit of the left-th largest of n bins, counted from 1, and what is then left in its bin, in every thread; left
// 0: there are not so many. Sets the bins to zero. `found` is shared. left_of(count) is asked with what all bins hold.
struct Digit {
  std::uint32_t digit, left, count;
};
template <class LeftOf>
__device__ inline Digit find_digit(std::uint32_t* bins, std::uint32_t n, LeftOf&& left_of, Digit& found,
                                   device::BlockScratch& scratch) {
  const std::uint32_t each = n / device::kThreads,
                      last = n - 1 - threadIdx.x * each;  // a thread's bins are [last - each + 1, last]
  std::uint32_t sum = 0, total;
  for (std::uint32_t j = 0; j < each; ++j) sum += bins[last - j];
  if (threadIdx.x == 0) found = {0, 0, 0};
  const std::uint32_t above = device::block_offsets(sum, scratch, &total), left = left_of(total);
  if (above < left && left <= above + sum) {
    std::uint32_t rest = left - above, b = last;
    for (; bins[b] < rest; --b) rest -= bins[b];
    found = {b, rest, bins[b]};
  }
  for (std::uint32_t j = 0; j < each; ++j) bins[last - j] = 0;
  __syncthreads();
  const Digit result = found;
  __syncthreads();
  return result;
}

struct FixShared {
  device::BlockScratch scratch;
  Digit found;
};

// A block per search: the next digit of its threshold.
template <int digit, std::uint32_t sides>
__global__ void __launch_bounds__(device::kThreads)
    fix_digit(ChunkTable table, float ratio, Search* searches, std::uint32_t* bins, Selection* selections) {
  auto& shared = device::shared_memory<FixShared>();
  const Search search = searches[blockIdx.x];
  if (search.left == 0) return;
  const auto left_of = [&](std::uint32_t candidates) {
    if (sides == 1 || digit > 0) return search.left;
    const auto k = static_cast<std::uint32_t>(share_of(ratio, candidates));
    return k < candidates ? k : 0;  // 0: all
  };
  const Digit found =
      find_digit(bins + std::size_t{blockIdx.x} * kBins, bins_of(digit), left_of, shared.found, shared.scratch);
  if (threadIdx.x != 0) return;
  Search next{found.left, search.key | found.digit << shift_of(digit)};
  if (digit == kDigits - 1 && found.left != 0) {
    const float threshold = __uint_as_float(next.key);
    const std::uint32_t g = blockIdx.x / sides;
    const std::uint64_t count = table.groups[g].count;
    if (sides == 1 || blockIdx.x % sides == 0) selections[g].up = threshold, selections[g].up_ties = count;
    if (sides == 1 || blockIdx.x % sides == 1) selections[g].down = threshold, selections[g].down_ties = count;
    if (found.count == found.left) next.left = 0;  // all that equal it
  }
  searches[blockIdx.x] = next;
}

// A block per piece: how many of its elements equal the threshold of a group that takes only some of these.
template <std::uint32_t threads, std::uint32_t sides>
__global__ void __launch_bounds__(threads, 4)
    count_ties(device::Source source, const Search* searches, std::uint32_t* equal) {
  auto& scratch = device::shared_memory<device::BlockScratch>();
  const PieceEntry piece = source.table.pieces[blockIdx.x];
  const Searches<sides> search(searches, piece.group);
  if (search.settled()) return;
  std::uint32_t mine = 0, total;
  for_values(source, piece, [&](float a) { mine += key_of(a) == search.of(a).key ? 1u << 16 * side_of<sides>(a) : 0; });
  device::block_offsets(mine, scratch, &total);
  if (threadIdx.x == 0) equal[blockIdx.x] = total;
}

struct TiesShared {
  device::BlockScratch scratch;
  std::uint32_t at, left;
};

// A block per search: behind which element the ties end.
template <std::uint32_t threads, std::uint32_t sides>
__global__ void __launch_bounds__(threads)
    cut_ties(device::Source source, const Search* searches, const std::uint32_t* equal, Selection* selections) {
  auto& shared = device::shared_memory<TiesShared>();
  const Search search = searches[blockIdx.x];
  if (search.left == 0) return;
  const std::uint32_t group = blockIdx.x / sides, side = blockIdx.x % sides;
  const GroupEntry& g = source.table.groups[group];
  // The index at which the running sum of count(0), count(1), ... reaches `left`, and what is left of it there.
  const auto reach = [&](std::uint32_t n, std::uint32_t left, auto&& count) {
    for (std::uint32_t first = 0; first < n; first += threads) {
      const std::uint32_t i = first + threadIdx.x, mine = i < n ? count(i) : 0;
      std::uint32_t total;
      const std::uint32_t before = device::block_offsets(mine, shared.scratch, &total);
      if (left <= total) {
        if (before < left && left <= before + mine) {
          shared.at = i;
          shared.left = left - before;
        }
        break;
      }
      left -= total;
    }
    __syncthreads();
  };
  reach(g.pieces, search.left, [&](std::uint32_t p) { return equal[g.first_piece + p] >> 16 * side & 0xffff; });
  const std::uint64_t begin = shared.at * kPieceElements;
  const std::uint32_t left = shared.left, n = source.table.pieces[g.first_piece + shared.at].count;
  __syncthreads();
  device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
    const device::Elements<entry> elements(source, g, begin);
    reach(n, left, [&](std::uint32_t i) {
      const float a = elements[i];
      return key_of(a) == search.key && side_of<sides>(a) == side ? 1u : 0u;
    });
  });
  if (threadIdx.x != 0) return;
  if (sides == 1 || side == 0) selections[group].up_ties = begin + shared.at + 1;
  if (sides == 1 || side == 1) selections[group].down_ties = begin + shared.at + 1;
}

template <std::uint32_t sides = 1>
int begin_groups(const ChunkTable& t, float ratio, const Scratch& room, Selection* selections, Stream s) {
  constexpr auto begin_all = &begin_search<128, sides>;
  return device::launch<begin_all>((t.group_count + 127) / 128, 128, 0, s, t, ratio, room.searches, selections);
}

// Settles the groups that are not settled.
template <std::uint32_t sides = 1>
int find_largest(const device::Source& source, float ratio, const Scratch& room, Selection* selections, Stream s) {
  const ChunkTable& t = source.table;
  const std::uint32_t searches = sides * t.group_count;
  if (s != device::only_load())
    if (const auto e = cudaMemsetAsync(room.bins, 0, std::size_t{searches} * kBins * sizeof(std::uint32_t), s);
        e != cudaSuccess)
      return static_cast<int>(e);
  const auto pass = [&](auto digit) {
    constexpr auto count_all = &count_digits<digit, sides>;
    constexpr auto fix_all = &fix_digit<digit, sides>;
    const int e =
        device::launch<count_all>(t.piece_count, device::kThreads, sides * bins_of(digit) * sizeof(std::uint32_t), s,
                                  source, room.searches, room.bins);
    return e ? e
             : device::launch<fix_all>(searches, device::kThreads, sizeof(FixShared), s, t, ratio, room.searches,
                                       room.bins, selections);
  };
  if (const int e = pass(std::integral_constant<int, 0>())) return e;
  if (const int e = pass(std::integral_constant<int, 1>())) return e;
  if (const int e = pass(std::integral_constant<int, 2>())) return e;
  constexpr auto count_all = &count_ties<device::kThreads, sides>;
  constexpr auto cut_all = &cut_ties<device::kThreads, sides>;
  if (const int e = device::launch<count_all>(t.piece_count, device::kThreads, sizeof(device::BlockScratch), s, source,
                                              room.searches, room.equal))
    return e;
  return device::launch<cut_all>(searches, device::kThreads, sizeof(TiesShared), s, source, room.searches, room.equal,
                                 selections);
}

}  // namespace crimp::select
