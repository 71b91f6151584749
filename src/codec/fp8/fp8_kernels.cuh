// 8-bit floats in a block: a warp finds the largest magnitude of a block of elements, which share a byte of scale.
#pragma once
#include "codec/device/byte_kernels.cuh"
#include "codec/fp8/fp8.hpp"

namespace crimp::fp8 {

template <bool e4m3>
struct Type {
  static constexpr bool kDithered = false, kChecked = true;
  static constexpr std::uint32_t kUnit = 32, kMostHead = kPieceElements / kUnit;  // blocks are multiples of the unit
  static constexpr std::uint32_t kShift = 20;
  static_assert((kMostHead * kMostHead) < (1u << kShift) && kMostHead <= 0xffffffffu >> kShift);
  struct Shared {
    std::uint32_t tops[kMostHead];
  };
  struct With {
    float up, down;
    std::uint32_t last, scale;
    template <int n>
    __device__ std::uint32_t word(const device::Floats<n>& a) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      if constexpr (n == 4) return pair(a.v[0], a.v[1]) | pair(a.v[2], a.v[3]) << 16;
#endif
      std::uint32_t word = 0;
#pragma unroll
      for (int k = 0; k < n; ++k) word |= code_of<e4m3>(a.v[k] * down) << (8 * k);
      return word;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // As code_of: to the nearest, and what is above the last code has that.
    __device__ std::uint32_t pair(float low, float high) const {
      std::uint16_t codes;
      if constexpr (e4m3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high * down), "f"(low * down));
      else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high * down), "f"(low * down));
      return codes;
    }
#endif
    // value_of, by a float whose exponent is the code's: subnormal codes are subnormal floats.
    __device__ float value(std::uint32_t code) const {
      constexpr Format format = e4m3 ? kE4m3 : kE5m2;
      const std::uint32_t sign = code << 24 & 0x80000000, bits = (code & 0x7f) << (23 - format.mantissa);
      return __uint_as_float(sign | bits) * __uint_as_float(static_cast<std::uint32_t>(254 - format.bias) << 23) * up;
    }
    __device__ bool legal() const { return scale <= kLastScale; }
    __device__ bool legal(std::uint32_t code) const { return (code & 0x7f) <= last; }
    __device__ bool legal_four(std::uint32_t codes) const {  // a byte above the last would carry into its sign
      return (((codes & 0x7f7f7f7f) + (0x7f - last) * 0x01010101) & 0x80808080) == 0;
    }
  };
  std::uint32_t block,
      reciprocal;  // of the block in units, times 2^kShift, rounded up: quotients of units by it are exact

  Type(std::uint32_t elements)
      : block(elements), reciprocal(((1u << kShift) + elements / kUnit - 1) / (elements / kUnit)) {}
  __device__ std::uint32_t head_bytes(std::uint32_t count) const {
    return ((count + kUnit - 1) / kUnit + block / kUnit - 1) * reciprocal >> kShift;
  }
  struct Head {};
  __device__ Head measure(const float* a, std::uint32_t count, std::uint8_t* head, bool, Shared& own) const {
    constexpr Format format = e4m3 ? kE4m3 : kE5m2;
    constexpr std::uint32_t whole = 4 * device::kWarp;  // elements of a warp
    // The largest magnitude of what a warp, or else a quarter of it, has at once; then of each block.
    const bool by_warps = block % whole == 0;
#pragma unroll 1
    for (std::uint32_t begin = device::warp() * whole; begin < count; begin += device::kWarps * whole) {
      const std::uint32_t i = begin + 4 * device::lane();
      float top = 0.0f;
      if (i + 3 < count) {
        const device::Floats<4> x = device::load<4>(a + i);
        top = fmaxf(fmaxf(fabsf(x.v[0]), fabsf(x.v[1])), fmaxf(fabsf(x.v[2]), fabsf(x.v[3])));
      } else {
#pragma unroll
        for (std::uint32_t k = 0; k < 3; ++k)
          if (i + k < count) top = fmaxf(top, fabsf(a[i + k]));
      }
      if (by_warps) {
        const std::uint32_t bits = __reduce_max_sync(device::kAllLanes, __float_as_uint(top));
        if (device::lane() == 0) own.tops[begin / whole] = bits;
      } else {
#pragma unroll
        for (int by = 1; by < 8; by *= 2) top = fmaxf(top, __shfl_xor_sync(device::kAllLanes, top, by));
        if (device::lane() % 8 == 0) own.tops[i / kUnit] = __float_as_uint(top);
      }
    }
    __syncthreads();
    const std::uint32_t unit = by_warps ? whole : kUnit, parts = (count + unit - 1) / unit, each = block / unit;
    if (threadIdx.x < head_bytes(count)) {
      std::uint32_t top = 0;
#pragma unroll 1
      for (std::uint32_t part = threadIdx.x * each; part < min((threadIdx.x + 1) * each, parts); ++part)
        top = max(top, own.tops[part]);
      head[threadIdx.x] = scale_byte(top, format);
    }
    __syncthreads();
    return {};
  }
  __device__ With at(const Head&, std::uint32_t i, const std::uint8_t* head, const Shared&) const {
    return with({}, scale(head, i), {});
  }

  struct DecodeShared {};
  __device__ void prepare(DecodeShared&) const {}
  __device__ Head head(const std::uint8_t*) const { return {}; }
  __device__ bool legal(const Head&) const { return true; }
  __device__ std::uint32_t scale(const std::uint8_t* in, std::uint32_t i) const {
    return in[i / kUnit * reciprocal >> kShift];
  }
  __device__ With with(const Head&, std::uint32_t scale, const DecodeShared&) const {
    constexpr Format format = e4m3 ? kE4m3 : kE5m2;
    return {__uint_as_float(scale << 23), scale ? __uint_as_float((254 - scale) << 23) : 0.0f, scale ? format.last : 0u,
            scale};
  }
};
static_assert(kPieceElements / 32 <= device::kThreads);

}  // namespace crimp::fp8
