// SIDCo's threshold of every group of a chunk: the moments of each piece by a warp, in the host's 32 sums, and the fit
// by one lane per group, in float64 with the functions of codec/sparse/sidco.hpp. Groups whose estimate fails are left
// to the exact selection.
#pragma once
#include "codec/coding/select_kernels.cuh"
#include "codec/sparse/sidco.hpp"
#include "codec/sparse/sparse_kernels.cuh"

namespace crimp::sidco {

static_assert(kLanes == device::kWarp);
inline constexpr std::uint32_t kMomentThreads = 128, kMomentPieces = kMomentThreads / device::kWarp;

struct Sums {
  double count, excess, squares, logs;
};
// How far a group's estimate is.
struct Fit {
  double later;        // the share that later stages keep
  float from;          // the threshold so far
  std::int32_t stage;  // the one whose moments are taken next, from 0; below 0: given up
  std::int32_t stages;
};

template <std::uint32_t threads>
__global__ void __launch_bounds__(threads) begin_fits(ChunkTable table, Fit* fits) {
  const std::uint32_t g = blockIdx.x * threads + threadIdx.x;
  if (g < table.group_count) fits[g] = {1.0, 0.0f, 0, 1};
}

// A warp per piece.
template <bool with_logs>
__global__ void __launch_bounds__(kMomentThreads)
    add_moments(device::Source source, const select::Search* searches, const Fit* fits, Sums* sums) {
  const std::uint32_t p = blockIdx.x * kMomentPieces + device::warp();
  if (p >= source.table.piece_count) return;
  const PieceEntry piece = source.table.pieces[p];
  if (searches[piece.group].left == 0 || fits[piece.group].stage < 0) return;
  const GroupEntry& g = source.table.groups[piece.group];
  const double from = fits[piece.group].from;
  Sums mine{};
  std::uint32_t count = 0;
#pragma unroll 4
  for (std::uint32_t i = device::lane(); i < piece.count; i += kLanes) {
    const double x = fabsf(device::element(source, g, piece.offset - g.offset + i)), y = x - from;
    if (!(y > 0.0)) continue;
    mine.excess = mine.excess + y;
    mine.squares = mine.squares + y * y;
    if constexpr (with_logs) mine.logs = mine.logs + log_of(x);
    ++count;
  }
#pragma unroll
  for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) {
    mine.excess = mine.excess + __shfl_down_sync(device::kAllLanes, mine.excess, half);
    mine.squares = mine.squares + __shfl_down_sync(device::kAllLanes, mine.squares, half);
    if constexpr (with_logs) mine.logs = mine.logs + __shfl_down_sync(device::kAllLanes, mine.logs, half);
  }
  mine.count = __reduce_add_sync(device::kAllLanes, count);
  if (device::lane() == 0) sums[p] = mine;
}

// A warp per group: adds the moments of its pieces in order and takes the next step of Sidco::select (sidco_host.cpp).
template <sparse::Tail tail>
__global__ void __launch_bounds__(device::kWarp) advance(ChunkTable table, float ratio, int stages, const Sums* sums,
                                                         Fit* fits, select::Search* searches, Selection* selections) {
  const std::uint32_t g = blockIdx.x;
  Fit fit = fits[g];
  if (searches[g].left == 0 || fit.stage < 0) return;
  const GroupEntry group = table.groups[g];
  Moments m{};
  m.from = fit.from;
  for (std::uint32_t first = 0; first < group.pieces; first += device::kWarp) {
    const std::uint32_t n = group.pieces - first < device::kWarp ? group.pieces - first : device::kWarp;
    const Sums mine = device::lane() < n ? sums[group.first_piece + first + device::lane()] : Sums{};
    for (std::uint32_t i = 0; i < n; ++i) {
      const int lane = static_cast<int>(i);
      m.count = m.count + __shfl_sync(device::kAllLanes, mine.count, lane);
      m.excess = m.excess + __shfl_sync(device::kAllLanes, mine.excess, lane);
      m.squares = m.squares + __shfl_sync(device::kAllLanes, mine.squares, lane);
      m.logs = m.logs + __shfl_sync(device::kAllLanes, mine.logs, lane);
    }
  }
  if (device::lane() != 0) return;
  const auto tail_of = [&](double share) {
    return tail == sparse::Tail::exponential ? exponential_tail(m, share) : pareto_tail(m, share);
  };
  const double k = static_cast<double>(share_of(ratio, group.count));
  bool settled = false, given_up = false;
  float eta = fit.from;
  if (fit.stage == 0) {
    settled = m.count <= k;
    if (!settled) {
      const double share = k / m.count;
      fit.stages = share < kFirstShare ? stages : 1;
      if (fit.stages > 1) fit.later = exp_of(log_of(share / kFirstShare) / (fit.stages - 1));
      const double first = fit.stages > 1 ? kFirstShare : share;
      if constexpr (tail == sparse::Tail::gamma) eta = static_cast<float>(gamma_tail(m, first));
      else eta = static_cast<float>(tail_of(first));
    }
  } else if (m.count == 0) {
    given_up = true;
  } else if (fit.stage < fit.stages) {
    eta = static_cast<float>(tail_of(fit.later));
  } else if (m.count >= 0.8 * k && m.count <= 1.2 * k) {
    settled = true;
  } else if (fit.stage == fit.stages) {
    eta = static_cast<float>(exponential_tail(m, k / m.count));
  } else if (m.count >= 0.5 * k && m.count <= 2 * k) {
    settled = true;
  } else {
    given_up = true;
  }
  if (settled) {
    selections[g] = {eta, eta, 0, 0};
    searches[g].left = 0;
    return;
  }
  given_up = given_up || !(eta > 0.0f) || __float_as_uint(eta) >= select::kInfinity;
  fits[g] = {fit.later, eta, given_up ? -1 : fit.stage + 1, fit.stages};
}

// The arrays of the estimates, in device memory.
struct Estimates {
  Fit* fits;   // of each group
  Sums* sums;  // of each piece

  static std::size_t bytes(const ChunkTable& t) {
    return select::Scratch::round(t.group_count * sizeof(Fit)) + select::Scratch::round(t.piece_count * sizeof(Sums));
  }
  Estimates(const ChunkTable& t, void* scratch)
      : fits(static_cast<Fit*>(scratch)),
        sums(reinterpret_cast<Sums*>(static_cast<std::uint8_t*>(scratch) +
                                     select::Scratch::round(t.group_count * sizeof(Fit)))) {}
};

template <sparse::Tail tail>
int estimate(const device::Source& source, float ratio, int stages, const select::Scratch& room,
             const Estimates& estimates, Selection* selections, Stream s) {
  const ChunkTable& t = source.table;
  constexpr auto begin_all = &begin_fits<128>;
  constexpr auto first_moments = &add_moments<tail == sparse::Tail::gamma>;
  constexpr auto later_moments = &add_moments<false>;
  constexpr auto advance_all = &advance<tail>;
  const std::uint32_t blocks = (t.piece_count + kMomentPieces - 1) / kMomentPieces;
  if (const int e = device::launch<begin_all>((t.group_count + 127) / 128, 128, 0, s, t, estimates.fits)) return e;
  for (int stage = 0; stage <= stages + 1; ++stage) {
    const int e = stage == 0 ? device::launch<first_moments>(blocks, kMomentThreads, 0, s, source, room.searches,
                                                             estimates.fits, estimates.sums)
                             : device::launch<later_moments>(blocks, kMomentThreads, 0, s, source, room.searches,
                                                             estimates.fits, estimates.sums);
    if (e) return e;
    if (const int f = device::launch<advance_all>(t.group_count, device::kWarp, 0, s, t, ratio, stages, estimates.sums,
                                                  estimates.fits, room.searches, selections))
      return f;
  }
  return 0;
}

}  // namespace crimp::sidco
