// SIDCo's threshold of every group of a chunk: the moments of each piece by a block, in the host's 32 sums, and the
// fit by one lane per group, in float64 with the functions of codec/sparse/sidco.hpp. Groups whose estimate fails are
// left to the exact selection.
#pragma once
#include "codec/coding/select_kernels.cuh"
#include "codec/sparse/sidco.hpp"
#include "codec/sparse/sparse_kernels.cuh"

namespace crimp::sidco {

static_assert(kLanes == device::kWarp);

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

inline constexpr std::uint32_t kLogs = 4 * device::kThreads;
template <bool with_logs>
struct MomentsShared {
  alignas(16) float a[kPieceElements];  // magnitudes
  double logs[with_logs ? kLogs : 1];   // of some elements at a time
};

// A block per piece: all of it fetches the magnitudes, then a warp has each sum, its lanes the host's. Logarithms, long
// to make and quick to add, are made by all threads.
template <bool with_logs>
__global__ void __launch_bounds__(device::kThreads, with_logs ? 3 : 4)
    add_moments(device::Source source, const select::Search* searches, const Fit* fits, Sums* sums,
                device::Order order) {
  auto& shared = device::shared_memory<MomentsShared<with_logs>>();
  const PieceEntry piece = source.table.pieces[order.piece()];
  if (searches[piece.group].left == 0 || fits[piece.group].stage < 0) return;
  select::for_vectors(source, piece, [&](auto n, std::size_t i, const device::Floats<4>& a) {
    device::Floats<n> magnitudes;
#pragma unroll
    for (int k = 0; k < n; ++k) magnitudes.v[k] = fabsf(a.v[k]);
    device::store<n>(shared.a + i, magnitudes);
  });
  __syncthreads();
  const float limit = fits[piece.group].from;
  const double from = limit;
  double sum = 0.0;
  std::uint32_t count = 0;
  // What is not above the limit adds 0, which changes no sum: none is -0.
  if (device::warp() < 2) {
    const bool squares = device::warp() == 1;
    const auto add = [&](std::uint32_t i) {
      const float x = shared.a[i];
      const double y = (x > limit ? x : limit) - from;
      sum = sum + (squares ? y * y : y);
      count += x > limit;
    };
    const std::uint32_t whole = piece.count / kLanes * kLanes;
#pragma unroll 8
    for (std::uint32_t i = device::lane(); i < whole; i += kLanes) add(i);
    if (whole + device::lane() < piece.count) add(whole + device::lane());
  }
  if constexpr (with_logs)
    for (std::uint32_t first = 0; first < piece.count; first += kLogs) {
      const std::uint32_t n = piece.count - first < kLogs ? piece.count - first : kLogs;
      for (std::uint32_t i = threadIdx.x; i < n; i += device::kThreads) {
        const double x = shared.a[first + i];
        shared.logs[i] = x - from > 0.0 ? log_of(x) : 0.0;
      }
      __syncthreads();
      if (device::warp() == 2)
#pragma unroll 8
        for (std::uint32_t i = device::lane(); i < n; i += kLanes)
          if (shared.a[first + i] - from > 0.0) sum = sum + shared.logs[i];
      __syncthreads();
    }
  if (device::warp() > 2) return;
#pragma unroll
  for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) sum = sum + __shfl_down_sync(device::kAllLanes, sum, half);
  count = __reduce_add_sync(device::kAllLanes, count);
  if (device::lane() != 0) return;
  Sums& to = sums[order.piece()];
  if (device::warp() == 0) to.count = count;
  (device::warp() == 0 ? to.excess : device::warp() == 1 ? to.squares : to.logs) = sum;
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
    // Zeros behind them change no sum: none is -0.
#pragma unroll 8
    for (int lane = 0; lane < static_cast<int>(device::kWarp); ++lane) {
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
  if (const int e = device::launch<begin_all>((t.group_count + 127) / 128, 128, 0, s, t, estimates.fits)) return e;
  for (int stage = 0; stage <= stages + 1; ++stage) {
    const device::Order order = stage % 2 ? device::Order::back(t) : device::Order();
    const int e = stage == 0
                      ? device::launch<first_moments>(t.piece_count, device::kThreads,
                                                      sizeof(MomentsShared<tail == sparse::Tail::gamma>), s, source,
                                                      room.searches, estimates.fits, estimates.sums, order)
                      : device::launch<later_moments>(t.piece_count, device::kThreads, sizeof(MomentsShared<false>), s,
                                                      source, room.searches, estimates.fits, estimates.sums, order);
    if (e) return e;
    if (const int f = device::launch<advance_all>(t.group_count, device::kWarp, 0, s, t, ratio, stages, estimates.sums,
                                                  estimates.fits, room.searches, selections))
      return f;
  }
  return 0;
}

}  // namespace crimp::sidco
