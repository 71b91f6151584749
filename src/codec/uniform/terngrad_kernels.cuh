// TernGrad in a block: digits as the uniform quantiser draws them, then the bytes of 3LC.
#pragma once
#include "codec/threelc/threelc_kernels.cuh"
#include "codec/uniform/uniform_kernels.cuh"

namespace crimp::uniform {

struct TernGradDevice : threelc::StripeSums {
  static constexpr std::uint32_t kHead = 16;  // the scale stands right in front of the base bytes, which are aligned
  struct Shared {
    device::BlockScratch scratch;
    float sums[kSumLanes], squares[kSumLanes], scale;
    std::uint8_t digits[kPieceElements];
    alignas(16) std::uint8_t bytes[kHead + kPieceElements / threelc::kTile * threelc::kStripe];
  };
  float clip;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return static_cast<std::uint32_t>(sizeof(float) + threelc::base_bytes(count));
  }

  // Two warps add up what the format orders; the largest magnitude is everybody's.
  __device__ float scale_of(const float* a, std::uint32_t count, Shared& own) const {
    if (threadIdx.x < kSumLanes) {
      float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
      for (std::uint32_t i = threadIdx.x; i < count; i += kSumLanes) {
        sum += a[i];
        squares += a[i] * a[i];
      }
      own.sums[threadIdx.x] = sum;
      own.squares[threadIdx.x] = squares;
    }
    std::uint32_t top = 0;
    for (std::uint32_t i = threadIdx.x; i < count; i += device::kThreads) top = max(top, __float_as_uint(fabsf(a[i])));
    top = device::block_max(top, own.scratch);
    if (device::warp() == 0) {
      const std::uint32_t lane = device::lane();
      const float sum = device::warp_tree_sum(own.sums[lane], own.sums[lane + device::kWarp]);
      const float squares = device::warp_tree_sum(own.squares[lane], own.squares[lane + device::kWarp]);
      if (lane == 0) own.scale = clipped_peak({sum, squares, __uint_as_float(top)}, count, clip);
    }
    __syncthreads();
    return own.scale;
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const float scale = scale_of(a, piece.count, own);
    const Grid grid = symmetric(scale, 1);
    for (std::uint32_t tile = threadIdx.x / kHalf; tile * kTile < piece.count; tile += dither::kHalves)
      dither::for_tile(piece.counter, tile, true, [&](std::uint32_t in_tile, std::uint32_t, std::uint32_t random) {
        const std::uint32_t i = tile * kTile + in_tile;
        if (i >= piece.count) return;
        const float x = a[i];
        const std::int32_t q = quantize(x, grid, random);
        own.digits[i] = static_cast<std::uint8_t>(q + 1);
        if (piece.keep) a[i] = x - dequantize(q, grid);
      });
    if (threadIdx.x == 0) device::store_bytes(own.bytes + kHead - sizeof scale, scale);
    __syncthreads();
    const auto n = static_cast<std::uint32_t>(threelc::base_bytes(piece.count));
    for (std::uint32_t b = threadIdx.x; b < n; b += device::kThreads) {
      const std::uint32_t begin = b / threelc::kStripe * threelc::kTile, width = threelc::stripe(begin, piece.count);
      std::uint32_t byte = 0;
#pragma unroll
      for (std::uint32_t j = 0; j < 5; ++j) {
        const std::uint32_t i = begin + b % threelc::kStripe + j * width;
        byte = 3 * byte + (i < piece.count ? own.digits[i] : 1);
      }
      own.bytes[kHead + b] = static_cast<std::uint8_t>(byte);
    }
    __syncthreads();
    device::copy_bytes(out, own.bytes + kHead - sizeof scale, bytes(piece.count));
    return bytes(piece.count);
  }

  // Finite and not negative, -0 neither.
  __device__ bool legal(const device::Piece&, float scale) const { return __float_as_uint(scale) < 0x7f800000u; }
};

}  // namespace crimp::uniform
