// SketchML in a block: the histogram, the fixed-point sums and the counts by integer atomics in shared memory, whose
// order does not show. A bin's count becomes its bucket in place. A warp makes 128 elements of all planes: lane 4 p + k
// has the k-th word of plane p.
#pragma once
#include "codec/coding/bit_plane.hpp"
#include "codec/device/piece_kernels.cuh"
#include "codec/sketchml/sketchml.hpp"

namespace crimp::sketchml {

inline constexpr std::uint32_t kWords = 4, kRun = kWords * device::kWarp,
                               kMostPlanes = device::kWarp / kWords;  // a run: what a warp takes at once
static_assert(1u << kMostPlanes >= kMostBuckets);

struct Device : device::PieceDevice {
  static constexpr std::uint32_t kEncodeBlocks = 3;
  static constexpr int kFetched = 2;
  struct Shared {
    device::BlockScratch scratch;
    unsigned long long sums[kMostBuckets];
    std::uint32_t counts[kMostBuckets];
    float means[kMostBuckets];
    alignas(16) std::uint32_t bins[kBins / 2];  // two bins of 16 bits each, the even one low
  };
  std::uint32_t quantiles;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    const std::uint32_t buckets = buckets_of(quantiles, count);
    return buckets * static_cast<std::uint32_t>(sizeof(float)) +
           bits_of(buckets) * static_cast<std::uint32_t>(bit_plane::bytes_of(count));
  }
  __device__ static std::uint32_t bucket(float a, std::uint32_t base, const Shared& own) {
    const std::uint32_t bin = bin_of(a, base);
    return own.bins[bin / 2] >> (bin % 2 * 16) & 0xffff;
  }
  // Bytes of the word that begins at byte `at` of a plane.
  __device__ static std::uint32_t word_bytes(std::uint32_t at, std::uint32_t plane_bytes) {
    return at >= plane_bytes ? 0 : plane_bytes - at < 4 ? plane_bytes - at : 4;
  }

  // Bins become buckets, eight bins a thread.
  __device__ static void fill_buckets(std::uint32_t n, std::uint32_t buckets, Shared& own) {
    static_assert(kBins == 8 * device::kThreads);
    std::uint32_t filled = 0, total;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t pair = own.bins[4 * threadIdx.x + k];
      filled += (pair & 0xffff) + (pair >> 16);
    }
    std::uint32_t below = device::block_offsets(filled, own.scratch, &total);
    if (filled == 0) return;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t pair = own.bins[4 * threadIdx.x + k], low = pair & 0xffff, high = pair >> 16;
      const std::uint32_t low_bucket = low ? bucket_of(below, low, n, buckets) : 0,
                          high_bucket = high ? bucket_of(below + low, high, n, buckets) : 0;
      own.bins[4 * threadIdx.x + k] = low_bucket | high_bucket << 16;
      below += low + high;
    }
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t n = piece.count, buckets = buckets_of(quantiles, n), bits = bits_of(buckets);
    for (std::uint32_t i = threadIdx.x; i < kBins / 2; i += device::kThreads) own.bins[i] = 0;
    if (threadIdx.x < kMostBuckets) own.sums[threadIdx.x] = own.counts[threadIdx.x] = 0;
    std::uint32_t top = 0;
    for (std::uint32_t i = threadIdx.x; i < n; i += device::kThreads) top = max(top, magnitude_bits(a[i]));
    const std::uint32_t largest = device::block_max(top, own.scratch), base = base_of(largest);
    for (std::uint32_t i = threadIdx.x; i < n; i += device::kThreads) {
      const std::uint32_t bin = bin_of(a[i], base);
      atomicAdd(&own.bins[bin / 2], 1u << (bin % 2 * 16));
    }
    __syncthreads();
    fill_buckets(n, buckets, own);
    __syncthreads();
    const double unit = unit_of(largest);
    for (std::uint32_t i = threadIdx.x; i < n; i += device::kThreads) {
      const std::uint32_t id = bucket(a[i], base, own);
      atomicAdd(&own.sums[id], static_cast<unsigned long long>(fixed_point(a[i], unit)));
      atomicAdd(&own.counts[id], 1u);
    }
    __syncthreads();
    if (threadIdx.x < buckets) {
      const float mean = mean_of(static_cast<std::int64_t>(own.sums[threadIdx.x]), own.counts[threadIdx.x], unit);
      own.means[threadIdx.x] = mean;
      device::store_bytes(out + threadIdx.x * sizeof mean, mean);
    }
    __syncthreads();
    const std::uint32_t plane_bytes = static_cast<std::uint32_t>(bit_plane::bytes_of(n)), lane = device::lane(),
                        plane = lane / kWords;
    std::uint8_t* const planes = out + buckets * sizeof(float);
    for (std::uint32_t first = device::warp() * kRun; first < n; first += device::kWarps * kRun) {
      std::uint32_t mine = 0;
#pragma unroll
      for (std::uint32_t k = 0; k < kWords; ++k) {
        const std::uint32_t i = first + k * device::kWarp + lane;
        std::uint32_t id = 0;
        if (i < n) {
          id = bucket(a[i], base, own);
          if (piece.keep) a[i] -= own.means[id];
        }
        for (std::uint32_t p = 0; p < bits; ++p) {
          const std::uint32_t word = __ballot_sync(device::kAllLanes, static_cast<int>(id >> p & 1));
          if (lane == p * kWords + k) mine = word;
        }
      }
      if (plane >= bits) continue;
      const std::uint32_t at = first / 8 + lane % kWords * 4, whole = word_bytes(at, plane_bytes);
      for (std::uint32_t b = 0; b < whole; ++b)
        planes[plane * plane_bytes + at + b] = static_cast<std::uint8_t>(mine >> (8 * b));
    }
    return bytes(n);
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t, float* acc,
                             Shared& own) const {
    const std::uint32_t n = piece.count, buckets = buckets_of(quantiles, n), bits = bits_of(buckets);
    bool legal = true;
    if (threadIdx.x < buckets) {
      const float mean = device::load_bytes<float>(in + threadIdx.x * sizeof(float));
      legal = (__float_as_uint(mean) & 0x7fffffffu) < 0x7f800000u;
      own.means[threadIdx.x] = mean;
    }
    if (device::block_any(!legal)) return false;
    const std::uint32_t plane_bytes = static_cast<std::uint32_t>(bit_plane::bytes_of(n)), lane = device::lane(),
                        plane = lane / kWords;
    const std::uint8_t* const planes = in + buckets * sizeof(float);
    for (std::uint32_t first = device::warp() * kRun; first < n; first += device::kWarps * kRun) {
      const std::uint32_t at = first / 8 + lane % kWords * 4, whole = plane < bits ? word_bytes(at, plane_bytes) : 0;
      std::uint32_t mine = 0;
      for (std::uint32_t b = 0; b < whole; ++b)
        mine |= static_cast<std::uint32_t>(planes[plane * plane_bytes + at + b]) << (8 * b);
#pragma unroll
      for (std::uint32_t k = 0; k < kWords; ++k) {
        const std::uint32_t i = first + k * device::kWarp + lane;
        std::uint32_t id = 0;
        for (std::uint32_t p = 0; p < bits; ++p)
          id |= (__shfl_sync(device::kAllLanes, mine, static_cast<int>(p * kWords + k)) >> lane & 1) << p;
        legal = legal && (i < n ? id < buckets : id == 0);
        if (i < n && id < buckets) acc[i] += own.means[id];
      }
    }
    return !device::block_any(!legal);
  }
};

}  // namespace crimp::sketchml
