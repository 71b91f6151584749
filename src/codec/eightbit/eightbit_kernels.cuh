// Dynamic 8-bit numbers in a block. What the codes decode to is a table in shared memory.
#pragma once
#include "codec/device/byte_kernels.cuh"
#include "codec/eightbit/eightbit.hpp"

namespace crimp::eightbit {

struct Type {
  static constexpr bool kDithered = false, kChecked = false;
  static constexpr std::uint32_t kMostHead = sizeof(float);
  struct Shared {
    std::uint32_t tops[device::kWarps];
    float table[kCodes];
  };
  struct With {
    float inverse;
    const float* table;
    // As code_of. Most numbers are above the decades of the last lines, which then cannot be the least.
    template <int n>
    __device__ std::uint32_t word(const device::Floats<n>& a) const {
      constexpr float above = 0x1p-13f;
      float x[n], y[n];
      bool low = false;
#pragma unroll
      for (int k = 0; k < n; ++k) {
        x[k] = fabsf(a.v[k]) * inverse;
        y[k] = fminf(least_line<0, 4>(x[k]), 127.0f);
        low = low || x[k] < above;
      }
      if (low) {
#pragma unroll
        for (int k = 0; k < n; ++k) y[k] = fminf(y[k], least_line<4>(x[k]));
      }
      std::uint32_t code[n];
#pragma unroll
      for (int k = 0; k < n; ++k) code[k] = __float_as_uint(__fadd_rz(y[k], 0x1p23f));
      if constexpr (n == 4) return device::signed_bytes(code, a);
      else return (code[0] & 0x7f) | __float_as_uint(a.v[0]) >> 31 << 7;
    }
    __device__ float value(std::uint32_t code) const {
      return __uint_as_float(__float_as_uint(table[code % kCodes]) | code / kCodes << 31);
    }
  };

  __device__ std::uint32_t head_bytes(std::uint32_t) const { return kMostHead; }
  // The inverse of the scale.
  __device__ float measure(const float* a, std::uint32_t count, std::uint8_t* head, bool keep, Shared& own) const {
    const std::uint32_t peak = device::warp_peak(a, count);
    if (device::lane() == 0) own.tops[device::warp()] = peak;
    __syncthreads();
    const std::uint32_t top = __reduce_max_sync(device::kAllLanes, own.tops[device::lane() % device::kWarps]);
    const float scale = scale_of(__uint_as_float(top));
    if (threadIdx.x == 0) device::store_bytes(head, scale);
    if (keep) {
      if (threadIdx.x < kCodes) own.table[threadIdx.x] = level_of(threadIdx.x) * scale;
      __syncthreads();
    }
    return inverse_of(scale);
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
  __device__ With at(float inverse, std::uint32_t, const std::uint8_t*, const Shared& own) const {
    return {inverse, own.table};
  }
};

}  // namespace crimp::eightbit
