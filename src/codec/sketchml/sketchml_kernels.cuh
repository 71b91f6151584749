// SketchML in a block: the histogram, the fixed-point sums and the counts by integer atomics in shared memory, whose
// order does not show. A bin's count becomes its bucket in place. A warp makes 128 elements of all planes: lane 4 p + k
// has the k-th word of plane p.
#pragma once
#include "codec/coding/bit_plane.hpp"
#include "codec/device/sums.cuh"
#include "codec/sketchml/sketchml.hpp"

namespace crimp::sketchml {

inline constexpr std::uint32_t kWords = 4, kRun = kWords * device::kWarp,
                               kMostPlanes = device::kWarp / kWords;  // a run: what a warp takes at once
static_assert(1u << kMostPlanes >= kMostBuckets);

struct Device : device::PieceDevice {
  static constexpr bool kDecodesAll = true;
  static constexpr std::uint32_t kEncodeBlocks = 3, kDecodeBlocks = 3;
  static constexpr int kFetched = 2;
  // Payloads whose means are in shared memory at once: each mean in kMeans >> bits places, 32 at most, so that few
  // lanes or none want the same bank.
  static constexpr std::uint32_t kTogether = 4, kMeans = 4 * device::kThreads;
  static_assert(kMeans >= 4 * kMostBuckets);
  struct DecodeShared {
    const std::uint8_t* planes[kTogether];
    alignas(16) float means[kTogether][kMeans];
    device::Floats<4> sums[device::kQuads][device::kThreads];  // between groups of payloads
  };
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

  // The word of the planes of a run of 128 elements that this lane has in kWords lanes a plane.
  __device__ static std::uint32_t word_of(const std::uint8_t* planes, std::uint32_t plane_bytes, std::uint32_t run,
                                          std::uint32_t bits) {
    const std::uint32_t plane = device::lane() / kWords;
    if (plane >= bits) return 0;
    return device::load_word(planes + plane * plane_bytes, run / 8 + device::lane() % kWords * 4, plane_bytes);
  }
  // The numbers of this lane's four elements of the run, from the words of all lanes: a byte for each.
  __device__ static std::uint32_t ids_of(std::uint32_t word, std::uint32_t bits) {
    const std::uint32_t from = device::lane() / 8, by = device::lane() % 8 * 4;
    std::uint32_t ids = 0;
    static_assert(kMostPlanes % 2 == 0);
#pragma unroll
    for (std::uint32_t two = 0; two < kMostPlanes; two += 2) {
      if (two >= bits) break;
#pragma unroll
      for (std::uint32_t p = two; p < two + 2; ++p) {  // of a plane that is not there the words are 0
        const std::uint32_t four = __shfl_sync(device::kAllLanes, word, static_cast<int>(from + p * kWords)) >> by & 15;
        ids |= four * (0x00204081u << p) & 0x01010101u << p;  // bit k of four to byte k
      }
    }
    return ids;
  }
  template <class Payloads, class To>
  __device__ void decode_all(const device::Piece& piece, const Payloads& payloads, const To& out, bool accumulate, int,
                             DecodeShared& own) const {
    const std::uint32_t n = piece.count, buckets = buckets_of(quantiles, n), bits = bits_of(buckets),
                        plane_bytes = static_cast<std::uint32_t>(bit_plane::bytes_of(n)),
                        copies = min(kMeans >> bits, device::kWarp),
                        mean_bytes = device::afresh(copies * static_cast<std::uint32_t>(sizeof(float)));
    const std::uint32_t in_mean = device::afresh(device::lane() % copies * static_cast<std::uint32_t>(sizeof(float)));
    const auto* const means = reinterpret_cast<const std::uint8_t*>(own.means);
    const bool some = buckets < 1u << bits;  // numbers are of no bucket
#pragma unroll 1
    for (std::uint32_t r = 0; r == 0 || r < payloads.count; r += kTogether) {
      if (r > 0) __syncthreads();
      constexpr std::uint32_t each = device::kThreads / kTogether;  // threads of a payload
      if (const std::uint32_t b = threadIdx.x / each; r + b < payloads.count) {
        const std::uint8_t* const in = payloads[r + b].in;
        if (threadIdx.x % each == 0) own.planes[b] = in + buckets * sizeof(float);
        float loaded[kMeans / 4 / each];
#pragma unroll
        for (std::uint32_t q = 0; q < kMeans / 4 / each; ++q) {
          const std::uint32_t bucket = 4 * (threadIdx.x % each + q * each) / copies;
          loaded[q] = bucket < buckets ? device::load_bytes<float>(in + bucket * sizeof(float)) : 0.0f;
        }
        bool legal = true;
#pragma unroll
        for (std::uint32_t q = 0; q < kMeans / 4 / each; ++q) {
          const float mean = loaded[q];
          legal = legal && (__float_as_uint(mean) & 0x7fffffffu) < 0x7f800000u;
          device::store<4>(own.means[b] + 4 * (threadIdx.x % each + q * each), {mean, mean, mean, mean});
        }
        if (!legal) payloads.malformed(r + b);
      }
      __syncthreads();
#pragma unroll 1
      for (std::uint32_t j = 0; j < device::kQuads; ++j) {
        const std::uint32_t run = (device::warp() + j * device::kWarps) * kRun;  // a lane has a QuadSums' slot of it
        if (run >= n) break;
        std::uint32_t words[kTogether];
#pragma unroll
        for (std::uint32_t b = 0; b < kTogether; ++b)
          words[b] = r + b < payloads.count ? word_of(device::global(own.planes[b]), plane_bytes, run, bits) : 0;
        float sums[4] = {};
        if (r > 0) {
          const device::Floats<4> before = own.sums[j][threadIdx.x];
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k) sums[k] = before.v[k];
        } else if constexpr (std::is_pointer_v<To>) {
          if (accumulate) device::QuadSums::load_slot(out, n, j, sums);
        }
        const std::uint32_t left = device::behind(run + 4 * device::lane(), n);
        std::uint32_t illegal = 0;  // a bit for each payload
#pragma unroll
        for (std::uint32_t b = 0; b < kTogether; ++b) {
          if (r + b >= payloads.count) break;
          const std::uint32_t ids = ids_of(words[b], bits);
          bool legal = left >= 4 || ids >> (8 * left) == 0;
#pragma unroll
          for (std::uint32_t k = 0; k < 4; ++k) {
            const std::uint32_t id = __byte_perm(ids, 0, 0x4440 + k);
            sums[k] += *reinterpret_cast<const float*>(means + b * sizeof own.means[0] + (id * mean_bytes + in_mean));
            if (some) legal = legal && id < buckets;
          }
          if (!legal) illegal |= 1u << b;
        }
        if (illegal != 0) payloads.malformed(r + static_cast<std::uint32_t>(__ffs(static_cast<int>(illegal))) - 1);
        if (r + kTogether < payloads.count) own.sums[j][threadIdx.x] = {sums[0], sums[1], sums[2], sums[3]};
        else device::QuadSums::store_slot(out, n, j, sums);
      }
    }
  }
};

}  // namespace crimp::sketchml
