// topk's threshold of an earlier call (TopK::select_again in topk_host.cpp), a group of the chunk beside the other: it
// is used again where about k elements reach it; the other groups are left to the exact selection.
#pragma once
#include "codec/coding/select_kernels.cuh"

namespace crimp::topk {

// A group's state, as the host has it.
struct State {
  float threshold = 0.0f, left = 0.0f;
  __device__ State(const GroupEntry& g) {
    if (!g.state_in) return;
    threshold = device::global(g.state_in)[0];
    left = device::global(g.state_in)[1];
  }
  __device__ bool usable() const { return left >= 1.0f && threshold > 0.0f; }
};
__device__ inline void store_state(const GroupEntry& g, float threshold, float left) {
  if (!g.state_out) return;
  device::global(g.state_out)[0] = threshold;
  device::global(g.state_out)[1] = left;
}

// What is counted of a group, as the host counts it: runs of `length` elements, or with one run all.
struct Runs {
  std::uint64_t count, runs, length;
  __device__ Runs(float ratio, std::uint64_t all) : count(all), runs(1), length(all) {
    const std::uint64_t expected = share_of(ratio, count) / kExpected, share = count <= kWhole ? 1
                                                                               : expected < kSmallestSample
                                                                                   ? expected
                                                                                   : kSmallestSample;
    if (share >= 2) runs = kRuns, length = count / (kRuns * share);
  }
  __device__ std::uint64_t begin(std::uint64_t run) const { return run * count / runs; }
  __device__ std::uint64_t scaled(std::uint32_t found) const {
    return runs == 1 ? found
                     : static_cast<std::uint64_t>(static_cast<double>(found) * static_cast<double>(count) /
                                                  static_cast<double>(runs * length));
  }
};

// A block per piece: how many of the elements that are counted reach the group's threshold.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads, 3)
    count_reaching(device::Source source, float ratio, std::uint32_t* reaching) {
  auto& scratch = device::shared_memory<device::BlockScratch>();
  const PieceEntry piece = source.table.pieces[blockIdx.x];
  const GroupEntry& g = source.table.groups[piece.group];
  const State state(g);
  if (!state.usable()) return;
  const std::uint32_t threshold = select::key_of(state.threshold);
  const Runs runs(ratio, g.count);
  std::uint32_t mine = 0, total;
  if (runs.runs == 1) {
    select::for_values(source, piece, [&](float a) { mine += select::key_of(a) >= threshold; });
  } else {
    const std::uint64_t begin = piece.offset - g.offset, end = begin + piece.count;
    device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
      const device::Elements<entry> elements(source, g, begin);
      for (std::uint64_t run = begin * runs.runs / g.count; run < runs.runs && runs.begin(run) < end; ++run) {
        const std::uint64_t at = runs.begin(run), behind = at + runs.length < end ? at + runs.length : end;
        if (behind <= begin) continue;
        const auto to = static_cast<std::uint32_t>(behind - begin);
        for (std::uint32_t i = (at < begin ? 0 : static_cast<std::uint32_t>(at - begin)) + threadIdx.x; i < to;
             i += threads)
          mine += select::key_of(elements[i]) >= threshold;
      }
    });
  }
  device::block_offsets(mine, scratch, &total);
  if (threadIdx.x == 0 && total) atomicAdd(&reaching[piece.group], total);
}

inline constexpr std::uint32_t kUsed = 0xffffffff;  // in `reaching`: the threshold is used again

// A thread per group: settles those whose threshold is used again.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads)
    use_again(ChunkTable table, float ratio, std::uint32_t* reaching, select::Search* searches, Selection* selections) {
  const std::uint32_t index = blockIdx.x * threads + threadIdx.x;
  if (index >= table.group_count) return;
  const GroupEntry& g = table.groups[index];
  const State state(g);
  if (!state.usable()) return;
  const std::uint64_t k = share_of(ratio, g.count), sent = Runs(ratio, g.count).scaled(reaching[index]);
  if (2 * sent < k || sent > 2 * k) return;
  const float below = __uint_as_float(__float_as_uint(state.threshold) - 1);
  selections[index] = {below, below, 0, 0};
  searches[index].left = 0;
  reaching[index] = kUsed;
  store_state(g, state.threshold, state.left - 1.0f);
}

// A thread per group: what was found anew is kept.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads)
    keep_thresholds(ChunkTable table, float reuse, const std::uint32_t* reaching, const Selection* selections) {
  const std::uint32_t index = blockIdx.x * threads + threadIdx.x;
  if (index >= table.group_count) return;
  const GroupEntry& g = table.groups[index];
  if (reaching[index] != kUsed) store_state(g, selections[index].up, reuse - 1.0f);
}

inline std::size_t reaching_bytes(const ChunkTable& t) {
  return select::Scratch::round(t.group_count * sizeof(std::uint32_t));
}

inline int find_again(const device::Source& source, float ratio, float reuse, const select::Scratch& room,
                      std::uint32_t* reaching, Selection* selections, Stream s) {
  const ChunkTable& t = source.table;
  constexpr auto count_all = &count_reaching<device::kThreads>;
  constexpr auto use_all = &use_again<128>;
  constexpr auto keep_all = &keep_thresholds<128>;
  if (const int e = device::zero(reaching, t.group_count * sizeof(std::uint32_t), s)) return e;
  if (const int e = select::begin_groups(t, ratio, room, selections, s)) return e;
  if (const int e = device::launch<count_all>(t.piece_count, device::kThreads, sizeof(device::BlockScratch), s, source,
                                              ratio, reaching))
    return e;
  const std::uint32_t blocks = (t.group_count + 127) / 128;
  if (const int e = device::launch<use_all>(blocks, 128, 0, s, t, ratio, reaching, room.searches, selections)) return e;
  if (const int e = select::find_largest(source, ratio, false, room, selections, s)) return e;
  return device::launch<keep_all>(blocks, 128, 0, s, t, reuse, reaching, selections);
}

}  // namespace crimp::topk
