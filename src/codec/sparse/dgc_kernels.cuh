// DGC's threshold from a sample of a group: what codec/sparse/dgc_host.cpp does, a group of the chunk beside the other.
// The threshold is corrected by passes that count what is above it; groups where that does not succeed are left to the
// exact selection.
#pragma once
#include "codec/coding/dither.hpp"
#include "codec/coding/select_kernels.cuh"

namespace crimp::dgc {

inline constexpr std::uint64_t kMostSampled = 16384;
inline constexpr std::uint32_t kCorrections = 3;

// A threshold of a group that a pass tries.
struct Trial {
  std::uint64_t counted;  // upper half: pieces; lower half: elements above the threshold
  float threshold;        // not above 0, or not finite: there is none
  std::uint32_t unused;
  __device__ static bool legal(float threshold) {
    return threshold > 0.0f && __float_as_uint(threshold) < select::kInfinity;
  }
};
// Those of all passes, in device memory.
struct Trials {
  std::uint32_t* open;  // of each pass: whether any group has a trial
  Trial* trials;        // of each pass, of each group

  static std::size_t bytes(const ChunkTable& t) {
    return 256 + select::Scratch::round((kCorrections + 1) * t.group_count * sizeof(Trial));
  }
  explicit Trials(void* scratch)
      : open(static_cast<std::uint32_t*>(scratch)),
        trials(reinterpret_cast<Trial*>(static_cast<std::uint8_t*>(scratch) + 256)) {}
};

struct SampleShared {
  select::RadixShared radix;
  float sample[kMostSampled];
};

// A block per group: the same rank in a sample, one element from each of equal strata at a place that changes with the
// call. Begins the trials.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads) take_samples(device::Source source, RandomCounter counter, float ratio,
                                                        float share, const select::Search* searches, Trials all) {
  auto& shared = device::shared_memory<SampleShared>();
  const std::uint32_t groups = source.table.group_count;
  if (threadIdx.x <= kCorrections) {
    all.trials[threadIdx.x * groups + blockIdx.x] = {};
    if (blockIdx.x == 0) all.open[threadIdx.x] = 0;
  }
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
  if (threadIdx.x == 0) all.trials[blockIdx.x].threshold = __uint_as_float(found.key);
}

// A block per piece. The last one of a group settles it, or corrects its threshold for the next pass.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads, 4)
    count_above(device::Source source, float ratio, std::uint32_t pass, Trials all, select::Search* searches,
                Selection* selections, device::Order order) {
  auto& scratch = device::shared_memory<device::BlockScratch>();
  if (pass != 0 && all.open[pass] == 0) return;
  const PieceEntry piece = source.table.pieces[order.piece()];
  Trial* const trial = all.trials + pass * source.table.group_count + piece.group;
  const float threshold = trial->threshold;
  if (!Trial::legal(threshold)) return;
  std::uint32_t mine = 0, total;
  select::for_values(source, piece, [&](float a) { mine += fabsf(a) > threshold; });
  device::block_offsets(mine, scratch, &total);
  if (threadIdx.x != 0) return;
  const GroupEntry& g = source.table.groups[piece.group];
  const std::uint64_t here = std::uint64_t{1} << 32 | total,
                      counted = here + atomicAdd(reinterpret_cast<unsigned long long*>(&trial->counted), here);
  if (counted >> 32 != g.pieces) return;
  const double sent = static_cast<std::uint32_t>(counted), wanted = static_cast<double>(share_of(ratio, g.count));
  if (sent <= 1.3 * wanted && sent >= 0.7 * wanted) {
    selections[piece.group] = {threshold, threshold, 0, 0};
    searches[piece.group].left = 0;
  } else if (pass < kCorrections) {
    trial[source.table.group_count].threshold = threshold * (sent > wanted ? 1.3f : 0.7f);
    atomicOr(&all.open[pass + 1], 1u);
  }
}

inline int try_samples(const device::Source& source, const RandomCounter& counter, float ratio, float share,
                       const select::Scratch& room, const Trials& trials, Selection* selections, Stream s) {
  const ChunkTable& t = source.table;
  constexpr auto sample_all = &take_samples<device::kThreads>;
  constexpr auto count_all = &count_above<device::kThreads>;
  if (const int e = device::launch<sample_all>(t.group_count, device::kThreads, sizeof(SampleShared), s, source,
                                               counter, ratio, share, room.searches, trials))
    return e;
  for (std::uint32_t pass = 0; pass <= kCorrections; ++pass)
    if (const int e = device::launch<count_all>(t.piece_count, device::kThreads, sizeof(device::BlockScratch), s,
                                                source, ratio, pass, trials, room.searches, selections,
                                                pass % 2 ? device::Order::back(t) : device::Order()))
      return e;
  return 0;
}

}  // namespace crimp::dgc
