// DGC's threshold from a sample of a group: what codec/sparse/dgc_host.cpp does, a group of the chunk beside the other.
// The threshold is corrected by passes that count what is above it; groups where that does not succeed are left to the
// exact selection.
#pragma once
#include "codec/coding/dither.hpp"
#include "codec/coding/select_kernels.cuh"

namespace crimp::dgc {

inline constexpr std::uint64_t kMostSampled = 16384;
inline constexpr int kCorrections = 3;

struct Trial {
  float threshold;      // not above 0, or not finite: given up
  std::uint32_t above;  // elements above it
  __device__ bool legal() const { return threshold > 0.0f && __float_as_uint(threshold) < select::kInfinity; }
};

struct SampleShared {
  select::RadixShared radix;
  float sample[kMostSampled];
};

// A block per group: the same rank in a sample, one element from each of equal strata at a place that changes with the
// call.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads) take_samples(device::Source source, RandomCounter counter, float ratio,
                                                        float share, const select::Search* searches, Trial* trials) {
  auto& shared = device::shared_memory<SampleShared>();
  if (searches[blockIdx.x].left == 0) return;
  const GroupEntry& g = source.table.groups[blockIdx.x];
  counter.element += g.offset;
  std::uint64_t sampled = share_of(share, g.count);
  if (sampled > kMostSampled) sampled = kMostSampled;
  if (sampled > g.count) sampled = g.count;
  std::uint64_t rank = share_of(ratio, sampled);
  if (rank > sampled) rank = sampled;
  const std::uint64_t shift = dither::bits16(counter, dither::kRounding, 0);
  // Stratum j begins at j count / size; without the multiples of size in count that is a division of 32 bits.
  const auto size = static_cast<std::uint32_t>(sampled), each = static_cast<std::uint32_t>(g.count / size),
             more = static_cast<std::uint32_t>(g.count - std::uint64_t{each} * size);
  device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
    using Elements = device::Elements<entry>;
    const Elements elements(source, g, 0);
    // Elements, which are anywhere, on their way at once.
    constexpr std::uint32_t at_once = entry == device::Entry::corrected ? 6 : 8;
#pragma unroll 1
    for (std::uint32_t first = threadIdx.x; first < size; first += at_once * threads) {
      float a[at_once];
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b) {
        const std::uint32_t j = first + b * threads, part = j * more, before = part / size,
                            width = each + (part - before * size + more >= size ? 1 : 0);
        const std::uint64_t begin = std::uint64_t{j} * each + before;
        a[b] = j < size ? elements[begin + (width * shift >> 16)] : 0.0f;
      }
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b)
        if (first + b * threads < size) shared.sample[first + b * threads] = a[b];
    }
  });
  const auto for_keys = [&](auto&& work) {  // a thread's own elements
#pragma unroll 4
    for (std::uint32_t j = threadIdx.x; j < size; j += threads)
      if (const std::uint32_t key = select::key_of(shared.sample[j]); key != 0) work(key);
  };
  const select::Found found =
      select::find_key(static_cast<std::uint32_t>(rank), select::kKeyBits, shared.radix, for_keys);
  if (threadIdx.x == 0) trials[blockIdx.x] = {__uint_as_float(found.key), 0};
}

// A block per piece.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads, 4)
    count_above(device::Source source, const select::Search* searches, Trial* trials, device::Order order) {
  auto& scratch = device::shared_memory<device::BlockScratch>();
  const PieceEntry piece = source.table.pieces[order.piece()];
  const float threshold = trials[piece.group].threshold;
  if (searches[piece.group].left == 0 || !trials[piece.group].legal()) return;
  std::uint32_t mine = 0, total;
  select::for_values(source, piece, [&](float a) { mine += fabsf(a) > threshold; });
  device::block_offsets(mine, scratch, &total);
  if (threadIdx.x == 0) atomicAdd(&trials[piece.group].above, total);
}

// A thread per group: settles it, or corrects its threshold.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads)
    judge(ChunkTable table, float ratio, Trial* trials, select::Search* searches, Selection* selections) {
  const std::uint32_t g = blockIdx.x * threads + threadIdx.x;
  if (g >= table.group_count || searches[g].left == 0) return;
  const Trial trial = trials[g];
  if (!trial.legal()) return;
  const double sent = trial.above, wanted = static_cast<double>(share_of(ratio, table.groups[g].count));
  if (sent <= 1.3 * wanted && sent >= 0.7 * wanted) {
    selections[g] = {trial.threshold, trial.threshold, 0, 0};
    searches[g].left = 0;
  } else {
    trials[g] = {trial.threshold * (sent > wanted ? 1.3f : 0.7f), 0};
  }
}

inline std::size_t trial_bytes(const ChunkTable& t) { return select::Scratch::round(t.group_count * sizeof(Trial)); }

inline int try_samples(const device::Source& source, const RandomCounter& counter, float ratio, float share,
                       const select::Scratch& room, Trial* trials, Selection* selections, Stream s) {
  const ChunkTable& t = source.table;
  constexpr auto sample_all = &take_samples<device::kThreads>;
  constexpr auto count_all = &count_above<device::kThreads>;
  constexpr auto judge_all = &judge<128>;
  if (const int e = device::launch<sample_all>(t.group_count, device::kThreads, sizeof(SampleShared), s, source,
                                               counter, ratio, share, room.searches, trials))
    return e;
  for (int i = 0; i <= kCorrections; ++i) {
    if (const int e =
            device::launch<count_all>(t.piece_count, device::kThreads, sizeof(device::BlockScratch), s, source,
                                      room.searches, trials, i % 2 ? device::Order::back(t) : device::Order()))
      return e;
    if (const int e = device::launch<judge_all>((t.group_count + 127) / 128, 128, 0, s, t, ratio, trials, room.searches,
                                                selections))
      return e;
  }
  return 0;
}

}  // namespace crimp::dgc
