// TernGrad in a block: digits as the uniform quantiser draws them, then the bytes of 3LC.
#pragma once
#include "codec/threelc/stripe_sums.cuh"
#include "codec/uniform/uniform_kernels.cuh"

namespace crimp::uniform {

struct TernGradDevice : threelc::StripeSums {
  static constexpr std::uint32_t kOtherBlocks = 3;
  static constexpr std::uint32_t kHead = 16;  // the scale stands right in front of the base bytes, which are aligned
  struct Shared {
    std::uint32_t tops[device::kWarps];
    float sums[2][kSumLanes], scale, inverse;
    alignas(16) std::uint8_t digits[kPieceElements];
    alignas(16) std::uint8_t bytes[kHead + kPieceElements / threelc::kTile * threelc::kStripe];
  };
  float clip;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return static_cast<std::uint32_t>(sizeof(float) + threelc::base_bytes(count));
  }

  // A sum in the order of the format, by 64 threads, of what `part` makes of the elements.
  template <class Part>
  __device__ static void sum_lanes(const float* a, std::uint32_t count, float* sums, Part&& part) {
    const std::uint32_t lane = threadIdx.x % kSumLanes;
    float sum = 0.0f;
    a += lane;
#pragma unroll 8
    for (std::uint32_t t = count / kSumLanes; t > 0; --t, a += kSumLanes) sum += part(*a);
    if (lane < count % kSumLanes) sum += part(*a);
    sums[lane] = sum;
  }
  // Leaves scale and 1 / scale, 0 where scale is. Two warps add up the elements and two their squares; the others look
  // for the largest.
  __device__ void measure(const float* a, std::uint32_t count, Shared& own) const {
    constexpr std::uint32_t summing = 2 * kSumLanes;
    if (threadIdx.x < kSumLanes) {
      sum_lanes(a, count, own.sums[0], [](float x) { return x; });
    } else if (threadIdx.x < summing) {
      sum_lanes(a, count, own.sums[1], [](float x) { return x * x; });
    } else {
      const std::uint32_t top = device::warp_peak(a, count, summing, device::kThreads - summing);
      if (device::lane() == 0) own.tops[device::warp()] = top;
    }
    __syncthreads();
    if (device::warp() == 0) {
      const std::uint32_t lane = device::lane();
      const float sum = device::warp_tree_sum(own.sums[0][lane], own.sums[0][lane + device::kWarp]);
      const float squares = device::warp_tree_sum(own.sums[1][lane], own.sums[1][lane + device::kWarp]);
      const bool has = lane >= summing / device::kWarp && lane < device::kWarps;
      const std::uint32_t top = __reduce_max_sync(device::kAllLanes, has ? own.tops[lane] : 0u);
      if (lane == 0) {
        const float scale = clipped_peak({sum, squares, __uint_as_float(top)}, count, clip);
        own.scale = scale;
        own.inverse = symmetric(scale, 1).inverse * 0x1p-16f;
        device::store_bytes(own.bytes + kHead - sizeof scale, scale);
      }
    }
    __syncthreads();
  }

  // The digits of whole tiles, two lanes a thread; as quantize() and dequantize() of uniform.hpp have them: 65536ths of
  // the scale are the last places of a float about 192, and the digit begins with the upper half of its bits.
  template <bool keep>
  __device__ void quantize_whole(const device::Piece& piece, float* a, Shared& own) const {
    const float scale = own.scale, inverse = own.inverse;
    constexpr std::uint32_t middle = 0x4340;  // of 192
#pragma unroll 1
    for (std::uint32_t tile = threadIdx.x / dither::kPairs; tile < piece.count / kTile; tile += dither::kPairTiles) {
      const dither::Pairs pairs(tile);
      pairs(piece.counter, tile, (1 - middle) & 0xffff,
            [&](std::uint32_t, std::uint32_t in_tile, std::uint32_t random, std::uint32_t next) {
              const std::uint32_t i = tile * kTile + in_tile;
              device::Floats<2> x = device::load<2>(a + i);
              const auto level = [&](float y, std::uint32_t u) {
                return __float_as_uint(fmaxf(y * inverse, -1.0f) + 192.0f) + u;
              };
              const std::uint32_t two = clamped_pair(level(x.v[0], random), level(x.v[1], next), 0x20002);
              *reinterpret_cast<std::uint16_t*>(own.digits + i) = static_cast<std::uint16_t>(__byte_perm(two, 0, 0x20));
              if constexpr (keep) {
                const auto left = [&](float y, std::uint32_t pick) {
                  return y - (__uint_as_float(__byte_perm(two, 0x4b000000, pick)) - 8388609.0f) * scale;
                };
                x.v[0] = left(x.v[0], 0x7610);
                x.v[1] = left(x.v[1], 0x7632);
                device::store<2>(a + i, x);
              }
            });
    }
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    measure(a, piece.count, own);
    if (piece.keep) quantize_whole<true>(piece, a, own);
    else quantize_whole<false>(piece, a, own);
    if (const std::uint32_t i = piece.count / kTile * kTile + threadIdx.x; i < piece.count) {
      const Grid grid = symmetric(own.scale, 1);
      const std::int32_t q = quantize(a[i], grid, dither::bits16(piece.counter, dither::kRounding, i));
      own.digits[i] = static_cast<std::uint8_t>(q + 1);
      if (piece.keep) a[i] -= dequantize(q, grid);
    }
    __syncthreads();
    // Four bytes at once: none of them carries into the next.
    constexpr std::uint32_t words = threelc::kStripe / 4;
    const std::uint32_t whole = piece.count / threelc::kTile;
#pragma unroll 1
    for (std::uint32_t w = threadIdx.x; w < whole * words; w += device::kThreads) {
      const auto* digits =
          reinterpret_cast<const std::uint32_t*>(own.digits) + w / words * (threelc::kTile / 4) + w % words;
      std::uint32_t four = digits[0];
#pragma unroll
      for (std::uint32_t j = 1; j < 5; ++j) four = 3 * four + digits[j * words];
      reinterpret_cast<std::uint32_t*>(own.bytes + kHead)[w] = four;
    }
    const auto n = static_cast<std::uint32_t>(threelc::base_bytes(piece.count));
    if (const std::uint32_t b = whole * threelc::kStripe + threadIdx.x; b < n) {
      const std::uint32_t begin = whole * threelc::kTile, width = threelc::stripe(begin, piece.count);
      std::uint32_t byte = 0;
#pragma unroll
      for (std::uint32_t j = 0; j < 5; ++j) {
        const std::uint32_t i = begin + threadIdx.x + j * width;
        byte = 3 * byte + (i < piece.count ? own.digits[i] : 1);
      }
      own.bytes[kHead + b] = static_cast<std::uint8_t>(byte);
    }
    __syncthreads();
    device::copy_bytes(out, own.bytes + kHead - sizeof(float), bytes(piece.count));
    return bytes(piece.count);
  }

  // Finite and not negative, -0 neither.
  __device__ bool legal(const device::Piece&, float scale) const { return __float_as_uint(scale) < 0x7f800000u; }
};

}  // namespace crimp::uniform
