// Natural compression in a block.
#pragma once
#include "codec/device/byte_kernels.cuh"
#include "codec/natural/natural.hpp"

namespace crimp::natural {

struct Type {
  static constexpr bool kDithered = true, kChecked = false;
  static constexpr std::uint32_t kMostHead = 0;
  struct Shared {};
  struct With {
    __device__ std::uint32_t code(float a, std::uint32_t random) const { return code_of(a, random); }
    __device__ float value(std::uint32_t code) const { return value_of(code); }
  };
  __device__ std::uint32_t head_bytes(std::uint32_t) const { return 0; }
  struct Head {};
  __device__ Head measure(const float*, std::uint32_t, std::uint8_t*, bool, Shared&) const { return {}; }
  struct DecodeShared {};
  __device__ void prepare(DecodeShared&) const {}
  __device__ Head head(const std::uint8_t*) const { return {}; }
  __device__ bool legal(const Head&) const { return true; }
  __device__ std::uint32_t scale(const std::uint8_t*, std::uint32_t) const { return 0; }
  __device__ With with(const Head&, std::uint32_t, const DecodeShared&) const { return {}; }
  __device__ With at(const Head&, std::uint32_t, const std::uint8_t*, const Shared&) const { return {}; }
};

}  // namespace crimp::natural
