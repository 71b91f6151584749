// The k largest magnitudes of every group of a chunk, exactly, equal ones by index (codec/coding/select.hpp on a GPU).
//
// Values are read once: a sample gives two magnitudes that almost surely enclose the k-th (Floyd and Rivest, CACM 1975,
// as on the host), a pass over the values counts what is above both and keeps what lies between, and a radix selection
// looks at what was kept alone (candidates in a buffer, as AIR Top-K: Zhang et al., SC 2023, has them). What equals one
// of the two is counted, not kept, so few levels cost nothing more. Where the sample has misled, or what lies between
// does not fit, the group's block reads all of the group, a digit a pass: slow, and as exact.
//
// Everything stays in device memory; the order in which blocks keep what they found does not show, as all that is done
// with it is counting. Groups that are settled (`left` is 0) cost an empty block.
//
// sides: 1: magnitudes are ranked. 2: the positive elements and the negative ones are, each on their own (adaq): a
// group then has two searches, the positives' first, one pass over its values, and one buffer; how many elements are
// looked for is a share of those that the pass counts.
#pragma once
#include "codec/coding/select_radix.cuh"
#include "codec/coding/select_sample.hpp"
#include "codec/coding/select_search.cuh"

namespace crimp::select {

// A thread per group. Where all that is not zero is selected no search is needed.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads)
    begin_search(ChunkTable table, float ratio, Search* searches, Selection* selections) {
  const std::uint32_t g = blockIdx.x * threads + threadIdx.x;
  if (g >= table.group_count) return;
  const std::uint64_t count = table.groups[g].count, k = share_of(ratio, count);
  searches[g] = {k < count ? static_cast<std::uint32_t>(k) : 0, 0, 0};
  selections[g] = {};
}

struct EncloseShared {
  RadixShared radix;
  alignas(16) float sample[kSample];
};

// A block per group: its brackets. Of a group that is no longer than the sample they are the magnitudes looked for.
// begins: searches and selections are not there yet.
template <std::uint32_t sides>
__global__ void __launch_bounds__(device::kThreads, 1)
    enclose(device::Source source, float ratio, bool begins, Search* searches, Tally* tallies, Selection* selections) {
  auto& shared = device::shared_memory<EncloseShared>();
  const GroupEntry& g = source.table.groups[blockIdx.x];
  searches += sides * blockIdx.x;
  tallies += sides * blockIdx.x;
  const std::uint64_t share = share_of(ratio, g.count);
  const std::uint32_t wanted = !begins                          ? searches->left
                               : sides == 1 && share >= g.count ? 0
                                                                : static_cast<std::uint32_t>(share);
  __syncthreads();
  if (threadIdx.x < sides) {
    searches[threadIdx.x] = {wanted, 0, 0};
    tallies[threadIdx.x] = {};
  }
  if (begins && threadIdx.x == 0) selections[blockIdx.x] = {};
  if (wanted == 0) return;
  const bool whole = g.count <= kSample;
  const std::uint32_t size = whole ? static_cast<std::uint32_t>(g.count) : kSample;
  if (threadIdx.x < 4 && size + threadIdx.x < kSample) shared.sample[size + threadIdx.x] = 0.0f;  // is no key
  device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
    using Elements = device::Elements<entry>;
    const Elements elements(source, g, 0);
    if (!whole && elements.aligned()) {  // a thread has whole runs, all on their way at once
      constexpr std::uint32_t runs = kSample / kRun / device::kThreads;
      typename Elements::Parts parts[runs][2];
#pragma unroll
      for (std::uint32_t r = 0; r < runs; ++r)
#pragma unroll
        for (std::uint32_t half = 0; half < 2; ++half)
          elements.template load_parts<4>(
              parts[r][half], sample_index(kRun * (threadIdx.x + r * device::kThreads), g.count) + 4 * half);
#pragma unroll
      for (std::uint32_t r = 0; r < runs; ++r)
#pragma unroll
        for (std::uint32_t half = 0; half < 2; ++half) {
          device::Floats<4> a;
#pragma unroll
          for (int k = 0; k < 4; ++k) a.v[k] = parts[r][half].a(source.policy, k);
          device::store<4>(shared.sample + 4 * (threadIdx.x + (2 * r + half) * device::kThreads), a);
        }
      return;
    }
    for (std::uint32_t first = threadIdx.x; first < size; first += 4 * device::kThreads) {
      float a[4];
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b) {
        const std::uint32_t j = first + b * device::kThreads;
        a[b] = j < size ? elements[whole ? j : sample_index(j, g.count)] : 0.0f;
      }
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b)
        if (first + b * device::kThreads < size) shared.sample[first + b * device::kThreads] = a[b];
    }
  });
  __syncthreads();
#pragma unroll 1
  for (std::uint32_t side = 0; side < sides; ++side) {
    const auto for_keys = [&](auto&& work) {
#pragma unroll 1
      for (std::uint32_t j = 4 * threadIdx.x; j < size; j += 4 * device::kThreads) {
        const device::Floats<4> a = device::load<4>(shared.sample + j);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (key_of(a.v[k]) != 0 && side_of<sides>(a.v[k]) == side) work(key_of(a.v[k]));
      }
    };
    std::uint32_t rank = whole ? wanted
                               : static_cast<std::uint32_t>(static_cast<float>(wanted) *
                                                            (static_cast<float>(size) / static_cast<float>(g.count)));
    if constexpr (sides == 2) {
      std::uint32_t mine = 0, all;
      for_keys([&](std::uint32_t) { ++mine; });
      device::block_offsets(mine, shared.radix.scratch, &all);
      rank = static_cast<std::uint32_t>(share_of(ratio, all));
    }
    // Four standard deviations of a sample of runs, neighbours in which are taken for much alike.
    const float share_of_sample = static_cast<float>(rank) / static_cast<float>(size);
    const std::uint32_t margin =
        whole || share_of_sample >= 1.0f
            ? 0
            : 4 + static_cast<std::uint32_t>(8.0f * sqrtf(static_cast<float>(rank) * (1.0f - share_of_sample)));
    Found ends[2];
    find_keys<2>({rank > margin ? rank - margin : 0, margin ? rank + margin : 0}, kKeyBits, shared.radix, ends,
                 for_keys);
    const std::uint32_t high = rank > margin ? ends[0].key : kInfinity, low = margin ? ends[1].key : high;
    if (threadIdx.x == 0) {
      searches[side].low = low;
      searches[side].high = high;
    }
  }
}

// The searches of a group, in registers.
template <std::uint32_t sides>
struct Searches {
  Search up, down;
  __device__ Searches(const Search* searches, std::uint32_t group)
      : up(searches[sides * group]), down(sides == 1 ? Search{} : searches[sides * group + sides - 1]) {}
  __device__ bool settled() const { return up.left == 0 && down.left == 0; }
  __device__ const Search& of(float a) const { return side_of<sides>(a) == 0 ? up : down; }
  __device__ bool between(float a) const {
    const std::uint32_t key = key_of(a);
    return key > of(a).low && key < of(a).high;
  }
};

inline constexpr std::uint32_t kList = 2048;  // elements that a block of the pass lists before it has their place
struct SiftShared {
  device::BlockScratch scratch;
  std::uint32_t between, begin;  // between: 16 bits for each side
  float list[kList];
};
__device__ inline std::uint32_t halves(std::uint32_t both) { return (both & 0xffff) + (both >> 16); }

// A block per piece: what is above and at the ends of the bracket is counted, what lies between is kept.
template <std::uint32_t sides>
__global__ void __launch_bounds__(device::kThreads, sides == 1 ? 4 : 3)
    sift(device::Source source, const Search* searches, Tally* tallies, Sifted* sifted, float* kept) {
  auto& shared = device::shared_memory<SiftShared>();
  const PieceEntry piece = source.table.pieces[blockIdx.x];
  const Searches<sides> search(searches, piece.group);
  if (search.settled()) return;
  if (threadIdx.x == 0) shared.between = 0;
  __syncthreads();
  // Places in a list of what lies between, in any order.
  const auto place_of = [&](float a) { return halves(atomicAdd(&shared.between, 1u << 16 * side_of<sides>(a))); };
  // A thread has 21 elements at most, so eight bits for each count, and 16 for a block's.
  constexpr std::uint32_t above = 1, at_high = above << 8, at_low = at_high << 8, any = at_low << 8;
  std::uint32_t counts[sides] = {}, all = 0;
  // Most elements are below the bracket, and but one comparison finds them.
  const auto below = [](std::uint32_t low) { return low ? low - 1 : 0; };
  const std::uint32_t below_up = below(search.up.low), below_down = below(search.down.low);
  for_values(source, piece, [&](float a) {
    const std::uint32_t key = key_of(a);
    const bool down = side_of<sides>(a) != 0;
    if (sides == 2 && key != 0) all += down ? 1u << 16 : 1u;
    if (key <= (down ? below_down : below_up)) return;
    const std::uint32_t low = down ? search.down.low : search.up.low, high = down ? search.down.high : search.up.high;
    if (key > low && key < high) {
      if (const std::uint32_t at = place_of(a); at < kList) shared.list[at] = a;
      return;
    }
    const std::uint32_t one = key > high ? above : key == high ? at_high : at_low;
    if (!down) counts[0] += one;
    else counts[sides - 1] += one;
  });
  if (sides == 2) {
    counts[0] += (all & 0xff) * any;
    counts[sides - 1] += (all >> 16) * any;
  }
  std::uint64_t totals[sides];
#pragma unroll
  for (std::uint32_t side = 0; side < sides; ++side) {
    const std::uint64_t even = counts[side] & 0x00ff00ff, odd = counts[side] >> 8 & 0x00ff00ff;
    const std::uint64_t wide = (even & 0xffff) | (odd & 0xffff) << 16 | even >> 16 << 32 | odd >> 16 << 48;
    device::block_scan(wide, std::uint64_t{0}, device::Plus(), shared.scratch, &totals[side]);
  }
  const std::uint32_t both = shared.between, n = halves(both);
  __syncthreads();
  const GroupEntry& g = source.table.groups[piece.group];
  if (threadIdx.x == 0) {
    tallies += sides * piece.group;
    Sifted mine{n ? atomicAdd(&tallies->kept, n) : 0, n, {}, {}};
    const auto add = [](std::uint32_t& to, std::uint32_t more) {
      if (more) atomicAdd(&to, more);
    };
#pragma unroll
    for (std::uint32_t side = 0; side < sides; ++side) {
      mine.at_high[side] = static_cast<std::uint16_t>(totals[side] >> 16);
      mine.at_low[side] = static_cast<std::uint16_t>(totals[side] >> 32);
      add(tallies[side].above, static_cast<std::uint16_t>(totals[side]));
      add(tallies[side].at_high, mine.at_high[side]);
      add(tallies[side].between, both >> 16 * side & 0xffff);
      add(tallies[side].at_low, mine.at_low[side]);
      add(tallies[side].all, static_cast<std::uint32_t>(totals[side] >> 48));
    }
    sifted[blockIdx.x] = mine;
    shared.begin = mine.begin;
    shared.between = 0;
  }
  __syncthreads();
  const std::uint32_t begin = shared.begin;
  if (n == 0 || begin + n > g.pieces * kKept) return;  // what does not fit is known by its number
  kept += std::size_t{g.first_piece} * kKept + begin;
  if (n <= kList) {
    for (std::uint32_t j = threadIdx.x; j < n; j += device::kThreads) kept[j] = shared.list[j];
    return;
  }
  for_values(source, piece, [&](float a) {
    if (search.between(a)) kept[place_of(a)] = a;
  });
}

// Of what was kept of a group, those that are fetched once.
inline constexpr std::uint32_t kHeld = 16384;
struct SettleShared {
  RadixShared radix;
  std::uint32_t at, left;
  alignas(16) float held[kHeld];
};

// A block per search: the magnitude looked for, and behind which element of those that equal it the selection ends.
template <std::uint32_t sides>
__global__ void __launch_bounds__(device::kThreads)
    settle(device::Source source, float ratio, Search* searches, const Tally* tallies, Sifted* sifted,
           const float* kept, Selection* selections) {
  auto& shared = device::shared_memory<SettleShared>();
  const std::uint32_t group = blockIdx.x / sides, side = blockIdx.x % sides;
  const GroupEntry& g = source.table.groups[group];
  // All at once, before the barrier.
  const Search search = searches[blockIdx.x];
  const Tally tally = tallies[blockIdx.x];
  const std::uint32_t all_kept = tallies[group * sides].kept, piece_count = g.pieces;
  const PieceEntry* const pieces = source.table.pieces + g.first_piece;
  sifted += g.first_piece;
  kept += std::size_t{g.first_piece} * kKept;
  __syncthreads();
  if (search.left == 0) return;
  if (threadIdx.x == 0) searches[blockIdx.x].left = 0;
  const std::uint32_t wanted = sides == 1 ? search.left : static_cast<std::uint32_t>(share_of(ratio, tally.all));
  if (sides == 2 && wanted >= tally.all) return;  // all that is not zero
  const std::uint32_t held = all_kept < kHeld ? all_kept : kHeld;
  const bool fits = all_kept <= piece_count * kKept;

  // Reads everything that is left to choose from, and counts in each piece what equals the key.
  const auto mine = [&](float a) { return key_of(a) != 0 && side_of<sides>(a) == side; };
  const auto for_kept = [&](auto&& work) {
#pragma unroll 1
    for (std::uint32_t j = 4 * threadIdx.x; j < held; j += 4 * device::kThreads) {
      const device::Floats<4> a = device::load<4>(shared.held + j);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (mine(a.v[k])) work(key_of(a.v[k]) - search.low);
    }
    constexpr std::uint32_t at_once = 8;
#pragma unroll 1
    for (std::uint32_t first = held + threadIdx.x; first < all_kept; first += at_once * device::kThreads) {
      float a[at_once];
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b)
        a[b] = first + b * device::kThreads < all_kept ? kept[first + b * device::kThreads] : 0.0f;
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b)
        if (mine(a[b])) work(key_of(a[b]) - search.low);
    }
  };
  const auto for_all = [&](auto&& work) {
    for (std::uint32_t p = 0; p < g.pieces; ++p)
      for_values(source, pieces[p], [&](float a) {
        if (mine(a)) work(key_of(a));
      });
  };
  const auto count_kept = [&](std::uint32_t key) {
    for (std::uint32_t p = device::warp(); p < g.pieces; p += device::kWarps) {
      const std::uint32_t begin = sifted[p].begin, n = sifted[p].between;
      std::uint32_t equal = 0;
      for (std::uint32_t j = device::lane(); j < n; j += device::kWarp)
        equal += mine(kept[begin + j]) && key_of(kept[begin + j]) == key;
      equal = __reduce_add_sync(device::kAllLanes, equal);
      if (device::lane() == 0) sifted[p].at_high[side] = static_cast<std::uint16_t>(equal);
    }
  };
  const auto count_all = [&](std::uint32_t key) {
    for (std::uint32_t p = 0; p < g.pieces; ++p) {
      std::uint32_t equal = 0, total;
      for_values(source, pieces[p], [&](float a) { equal += mine(a) && key_of(a) == key; });
      device::block_offsets(equal, shared.radix.scratch, &total);
      if (threadIdx.x == 0) sifted[p].at_high[side] = static_cast<std::uint16_t>(total);
    }
  };

  // Where the magnitude is: `left` of those that are not above what was passed.
  const std::uint32_t below_above = wanted - tally.above, below_high = below_above - tally.at_high,
                      below_between = below_high - tally.between;
  const bool missed =
      wanted <= tally.above || (wanted > tally.above + tally.at_high + tally.between + tally.at_low && search.low != 0);
  const bool at_high = !missed && below_above <= tally.at_high,
             between = !missed && !at_high && below_high <= tally.between, at_low = !missed && !at_high && !between;
  Found found{};
  if (at_high) {
    found = {search.high, below_above, tally.at_high};
  } else if (at_low) {
    if (below_between > tally.at_low) return;  // all that is not zero
    found = {search.low, below_between, tally.at_low};
  } else if (between && fits) {
#pragma unroll 8
    for (std::uint32_t j = 4 * threadIdx.x; j + 4 <= held; j += 4 * device::kThreads)
      device::copy_async<4>(shared.held + j, kept + j);
    if (const std::uint32_t j = held / 4 * 4 + threadIdx.x; j < (held + 3) / 4 * 4)
      shared.held[j] = j < held ? kept[j] : 0.0f;  // is no key
    device::wait_async();
    const std::uint32_t span = search.high - search.low;
    found = find_key(below_high, device::kWarp - static_cast<std::uint32_t>(__clz(static_cast<int>(span))),
                     shared.radix, for_kept);
    found.key += search.low;
  } else {
    found = find_key(wanted, kKeyBits, shared.radix, for_all);
    if (found.left == 0) return;
  }
  std::uint64_t ties = g.count;
  if (found.left < found.equal) {
    if (between && fits) count_kept(found.key);
    else if (!at_high && !at_low) count_all(found.key);
    __syncthreads();
    // The index at which the running sum of count(0), count(1), ... reaches `left`, and what is left of it there.
    const auto reach = [&](std::uint32_t n, std::uint32_t left, auto&& count) {
      for (std::uint32_t first = 0; first < n; first += device::kThreads) {
        const std::uint32_t i = first + threadIdx.x, here = i < n ? count(i) : 0;
        std::uint32_t total;
        const std::uint32_t before = device::block_offsets(here, shared.radix.scratch, &total);
        if (left <= total) {
          if (before < left && left <= before + here) {
            shared.at = i;
            shared.left = left - before;
          }
          break;
        }
        left -= total;
      }
      __syncthreads();
    };
    reach(g.pieces, found.left,
          [&](std::uint32_t p) { return std::uint32_t{(at_low ? sifted[p].at_low : sifted[p].at_high)[side]}; });
    const std::uint64_t begin = shared.at * kPieceElements;
    const std::uint32_t left = shared.left, n = pieces[shared.at].count;
    __syncthreads();
    device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
      const device::Elements<entry> elements(source, g, begin);
      reach(n, left, [&](std::uint32_t i) {
        const float a = elements[i];
        return key_of(a) == found.key && side_of<sides>(a) == side ? 1u : 0u;
      });
    });
    ties = begin + shared.at + 1;
  }
  if (threadIdx.x != 0) return;
  const float threshold = __uint_as_float(found.key);
  if (sides == 1 || side == 0) selections[group].up = threshold, selections[group].up_ties = ties;
  if (sides == 1 || side == 1) selections[group].down = threshold, selections[group].down_ties = ties;
}

inline int begin_groups(const ChunkTable& t, float ratio, const Scratch& room, Selection* selections, Stream s) {
  constexpr auto begin_all = &begin_search<128>;
  return device::launch<begin_all>((t.group_count + 127) / 128, 128, 0, s, t, ratio, room.searches, selections);
}

// Settles the groups that are not settled; begins: all of them, without begin_groups().
template <std::uint32_t sides = 1>
int find_largest(const device::Source& source, float ratio, bool begins, const Scratch& room, Selection* selections,
                 Stream s) {
  const ChunkTable& t = source.table;
  constexpr auto enclose_all = &enclose<sides>;
  constexpr auto sift_all = &sift<sides>;
  constexpr auto settle_all = &settle<sides>;
  if (const int e = device::launch<enclose_all>(t.group_count, device::kThreads, sizeof(EncloseShared), s, source,
                                                ratio, begins, room.searches, room.tallies, selections))
    return e;
  if (const int e = device::launch<sift_all>(t.piece_count, device::kThreads, sizeof(SiftShared), s, source,
                                             room.searches, room.tallies, room.sifted, room.kept))
    return e;
  return device::launch<settle_all>(sides * t.group_count, device::kThreads, sizeof(SettleShared), s, source, ratio,
                                    room.searches, room.tallies, room.sifted, room.kept, selections);
}

}  // namespace crimp::select
