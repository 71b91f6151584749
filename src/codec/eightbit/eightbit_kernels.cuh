// Dynamic 8-bit numbers in a block. What the codes decode to is a table in shared memory.
#pragma once
#include "codec/device/byte_kernels.cuh"
#include "codec/eightbit/eightbit.hpp"

namespace crimp::eightbit {

struct Type {
  static constexpr bool kDithered = false, kChecked = false;
  static constexpr std::uint32_t kMostHead = sizeof(float);
  struct Shared {
    device::BlockScratch scratch;
    float inverse, table[kCodes];
  };
  struct With {
    float inverse;
    const float* table;
    __device__ std::uint32_t code(float a, std::uint32_t) const {
      return code_of(fabsf(a) * inverse) | __float_as_uint(a) >> 31 << 7;
    }
    __device__ float value(std::uint32_t code) const {
      return __uint_as_float(__float_as_uint(table[code % kCodes]) | code / kCodes << 31);
    }
  };

  __device__ std::uint32_t head_bytes(std::uint32_t) const { return kMostHead; }
  __device__ static void fill(float scale, Shared& own) {
    if (threadIdx.x < kCodes) own.table[threadIdx.x] = level_of(threadIdx.x) * scale;
    if (threadIdx.x == 0) own.inverse = inverse_of(scale);
    __syncthreads();
  }
  __device__ void measure(const float* a, std::uint32_t count, std::uint8_t* head, Shared& own) const {
    std::uint32_t top = 0;  // bits of numbers without sign order as the numbers do
    for (std::uint32_t i = threadIdx.x; i < count; i += device::kThreads) top = max(top, __float_as_uint(fabsf(a[i])));
    const float scale = scale_of(__uint_as_float(device::block_max(top, own.scratch)));
    if (threadIdx.x == 0) device::store_bytes(head, scale);
    fill(scale, own);
  }
  using Head = float;  // the scale
  // One for each bank of shared memory: every lane has its own.
  struct DecodeShared {
    float levels[kCodes * device::kWarp];
  };
  struct Scaled {
    float scale;
    const float* levels;  // the lane's
    __device__ float value(std::uint32_t code) const {
      return __uint_as_float(__float_as_uint(levels[code % kCodes * device::kWarp] * scale) | code / kCodes << 31);
    }
  };
  __device__ void prepare(DecodeShared& own) const {
    static_assert(device::kThreads % kCodes == 0);
    const float level = level_of(threadIdx.x % kCodes);
#pragma unroll
    for (std::uint32_t k = 0; k < device::kWarp; k += device::kThreads / kCodes)  // neighbours write different banks
      own.levels[threadIdx.x % kCodes * device::kWarp + (threadIdx.x + k + threadIdx.x / kCodes) % device::kWarp] =
          level;
    __syncthreads();
  }
  __device__ Head head(const std::uint8_t* in) const {
    return __uint_as_float(device::load_word(in, 0, sizeof(float)));
  }
  __device__ bool legal(Head scale) const { return __float_as_uint(scale) < 0x7f800000u; }
  __device__ std::uint32_t scale(const std::uint8_t*, std::uint32_t) const { return 0; }
  __device__ Scaled with(Head scale, std::uint32_t, const DecodeShared& own) const {
    return {scale, own.levels + device::lane()};
  }
  __device__ With at(std::uint32_t, const std::uint8_t*, const Shared& own) const { return {own.inverse, own.table}; }
};

}  // namespace crimp::eightbit
