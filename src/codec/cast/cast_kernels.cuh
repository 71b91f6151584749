// fp32 and bf16 in a block: four neighbouring values a thread.
#pragma once
#include "codec/device/sums.cuh"
#include "core/half.hpp"

namespace crimp::cast {

struct F32 {
  using Code = std::uint32_t;
  __device__ static Code narrow(float x) { return __float_as_uint(x); }
  __device__ static float widen(Code c) { return __uint_as_float(c); }
};
struct Bf16 {
  using Code = std::uint16_t;
  __device__ static Code narrow(float x) { return bfloat_from_float(x); }
  __device__ static float widen(Code c) { return float_from_bfloat(c); }
};

template <class Type>
struct Device : device::QuadSums {
  using Code = typename Type::Code;
  using Slot = std::conditional_t<sizeof(Code) == 2, std::uint64_t, device::Floats<4>>;
  struct Shared {};
  template <int n>
  struct alignas(n * sizeof(Code)) Codes {
    Code v[n];
  };

  __device__ std::uint32_t bytes(std::uint32_t count) const { return static_cast<std::uint32_t>(count * sizeof(Code)); }
  // Pieces of odd counts leave the next ones at odd addresses.
  __device__ static bool quads(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % sizeof(Codes<4>) == 0; }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared&) const {
    device::for_elements(piece.count, quads(out), [&](auto n, std::uint32_t i) {
      auto x = device::load<n>(a + i);
      Codes<n> codes;
#pragma unroll
      for (int k = 0; k < n; ++k) {
        codes.v[k] = Type::narrow(x.v[k]);
        x.v[k] -= Type::widen(codes.v[k]);
      }
      reinterpret_cast<Codes<n>*>(out)[i / n] = codes;
      if (piece.keep) device::store<n>(a + i, x);
    });
    return bytes(piece.count);
  }

  __device__ Slot fetch(const device::Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::size_t i = first_of(j);
    if constexpr (sizeof(Code) == 2) {
      return device::load_halves(in, i, piece.count);
    } else {
      Slot four = {};
      const std::uint32_t left = device::behind(i, piece.count);
      const auto* from = reinterpret_cast<const float*>(in) + i;
      if (left >= 4 && quads(in)) return device::load<4>(from);
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (k < left) four.v[k] = from[k];
      return four;
    }
  }
  __device__ bool add(const device::Piece&, const Head&, const Slot& slot, std::uint32_t, float (&sums)[kEach],
                      const DecodeShared&) const {
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k) {
      if constexpr (sizeof(Code) == 2) sums[k] += Type::widen(static_cast<Code>(slot >> (16 * k)));
      else sums[k] += slot.v[k];
    }
    return true;
  }
};

}  // namespace crimp::cast
