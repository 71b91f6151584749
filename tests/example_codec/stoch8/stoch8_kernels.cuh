// stoch8 in a block.
#pragma once
#include "codec/device/byte_kernels.cuh"
#include "codec/stoch8/stoch8.hpp"

namespace crimp::stoch8 {

struct Type {
  static constexpr bool kDithered = true, kChecked = true;
  static constexpr std::uint32_t kMostHead = sizeof(float);
  struct Shared {
    device::BlockScratch scratch;
  };
  struct With {
    uniform::Grid grid;
    std::uint32_t levels;
    __device__ std::uint32_t code(float a, std::uint32_t random) const { return code_of(a, grid, random); }
    __device__ float value(std::uint32_t code) const { return value_of(code, grid); }
    __device__ bool legal() const { return true; }
    __device__ bool legal(std::uint32_t code) const { return legal_code(code, levels); }
  };
  std::uint32_t levels;

  __device__ std::uint32_t head_bytes(std::uint32_t) const { return kMostHead; }
  // The scale.
  __device__ float measure(const float* a, std::uint32_t count, std::uint8_t* head, bool, Shared& own) const {
    std::uint32_t top = 0;  // bits of numbers without sign order as the numbers do
    for (std::uint32_t i = threadIdx.x; i < count; i += device::kThreads) top = max(top, __float_as_uint(fabsf(a[i])));
    const float scale = scale_of(__uint_as_float(device::block_max(top, own.scratch)));
    if (threadIdx.x == 0) device::store_bytes(head, scale);
    return scale;
  }
  using Head = float;  // the scale
  struct DecodeShared {};
  __device__ void prepare(DecodeShared&) const {}
  __device__ Head head(const std::uint8_t* in) const {
    return __uint_as_float(device::load_word(in, 0, sizeof(float)));
  }
  __device__ bool legal(Head scale) const {  // not negative, -0, Inf or NaN
    return __float_as_uint(scale) < 0x7f800000u && uniform::finite(grid_of(scale, levels));
  }
  __device__ std::uint32_t scale(const std::uint8_t*, std::uint32_t) const { return 0; }
  __device__ With with(Head scale, std::uint32_t, const DecodeShared&) const {
    return {grid_of(scale, levels), levels};
  }
  __device__ With at(float scale, std::uint32_t, const std::uint8_t*, const Shared&) const {
    return {grid_of(scale, levels), levels};
  }
};

}  // namespace crimp::stoch8
