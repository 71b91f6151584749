// fp16 in a block: a warp finds the largest magnitude of a block of elements, then four neighbouring values a thread.
#pragma once
#include "codec/cast/fp16.hpp"
#include "codec/device/sums.cuh"

namespace crimp::fp16 {

struct Device : device::QuadSums {
  static constexpr std::uint32_t kDecodeBlocks = 3;
  struct Shared {
    std::uint8_t scales[kBlocks];
  };
  template <int n>
  struct alignas(n * sizeof(std::uint16_t)) Codes {
    std::uint16_t v[n];
  };
  static_assert(kBlock % 4 == 0 && kBlocks % sizeof(Codes<4>) == 0);

  __device__ std::uint32_t bytes(std::uint32_t count) const { return kBlocks + 2 * count; }
  // Pieces of odd counts leave the next ones at addresses that are even only.
  __device__ static bool quads(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(Codes<4>) == 0; }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    for (std::uint32_t b = device::warp(); b < kBlocks; b += device::kWarps) {
      const std::uint32_t end = (b + 1) * kBlock < piece.count ? (b + 1) * kBlock : piece.count;
      std::uint32_t top = 0;
#pragma unroll 4
      for (std::uint32_t i = b * kBlock + device::lane(); i < end; i += device::kWarp)
        top = max(top, __float_as_uint(a[i]) & 0x7fffffffu);
      top = __reduce_max_sync(device::kAllLanes, top);
      if (device::lane() == 0) out[b] = own.scales[b] = b < blocks(piece.count) ? scale_byte(top) : std::uint8_t{0};
    }
    __syncthreads();
    std::uint8_t* const codes = out + kBlocks;
    device::for_elements(piece.count, quads(codes), [&](auto n, std::uint32_t i) {
      const std::uint32_t scale = own.scales[i / kBlock];
      const float up = __uint_as_float(scale_bits(scale)), down = __uint_as_float(inverse_bits(scale));
      auto x = device::load<n>(a + i);
      Codes<n> to;
#pragma unroll
      for (int k = 0; k < n; ++k) {
        to.v[k] = device::narrow_half(x.v[k] * down);
        x.v[k] -= device::wide_half(to.v[k]) * up;
      }
      reinterpret_cast<Codes<n>*>(codes)[i / n] = to;
      if (piece.keep) device::store<n>(a + i, x);
    });
    return bytes(piece.count);
  }

  using Head = std::uint32_t;  // the scale byte of a thread's number
  struct Slot {
    std::uint64_t codes;
    std::uint32_t scale;
  };
  __device__ Head head(const device::Piece&, const std::uint8_t* in) const {
    return threadIdx.x < kBlocks ? in[threadIdx.x] : 0u;
  }
  __device__ bool legal(const device::Piece& piece, Head byte) const {
    return threadIdx.x >= kBlocks || fp16::legal(byte, threadIdx.x, piece.count);
  }
  __device__ Slot fetch(const device::Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::size_t i = first_of(j);
    return {device::load_halves(in + kBlocks, i, piece.count),
            device::behind(i, piece.count) ? in[static_cast<std::uint32_t>(i) / kBlock] : 0u};
  }
  __device__ bool add(const device::Piece&, const Head&, const Slot& slot, std::uint32_t, float (&sums)[kEach],
                      const DecodeShared&) const {
    const float up = __uint_as_float(scale_bits(slot.scale));
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k)
      sums[k] += device::wide_half(static_cast<std::uint16_t>(slot.codes >> (16 * k))) * up;
    return true;
  }
};

}  // namespace crimp::fp16
