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
  struct Shared {};
  struct With {
    float up, down;
    std::uint32_t last, scale;
    __device__ std::uint32_t code(float a, std::uint32_t) const { return code_of<e4m3>(a * down); }
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
  __device__ void measure(const float* a, std::uint32_t count, std::uint8_t* head, Shared&) const {
    constexpr Format format = e4m3 ? kE4m3 : kE5m2;
    const std::uint32_t blocks = head_bytes(count);
    for (std::uint32_t b = device::warp(); b < blocks; b += device::kWarps) {
      const std::uint32_t end = (b + 1) * block < count ? (b + 1) * block : count;
      std::uint32_t top = 0;
#pragma unroll 4
      for (std::uint32_t i = b * block + device::lane(); i < end; i += device::kWarp)
        top = max(top, __float_as_uint(a[i]) & 0x7fffffffu);
      top = __reduce_max_sync(device::kAllLanes, top);
      if (device::lane() == 0) head[b] = scale_byte(top, format);
    }
    __syncthreads();
  }
  __device__ With at(std::uint32_t i, const std::uint8_t* head, const Shared&) const {
    return with({}, scale(head, i), {});
  }

  struct Head {};
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
