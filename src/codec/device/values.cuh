// A program's values of other types than float32 in kernels: widened where they are loaded, sums rounded where they are
// stored. Where float32 has a kernel of its own (`other` is false) it is a plain pointer, so that no register is spent
// on other types.
#pragma once
#include "codec/device/block.cuh"
#include "core/half.hpp"
#include "core/values.hpp"

namespace crimp::device {

// As core/half.hpp has them, but that a NaN may become another one.
__device__ inline float wide_half(std::uint16_t h) {
#ifdef CRIMP_SIMT
  return float_from_half(h);
#else
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
#endif
}
__device__ inline std::uint16_t narrow_half(float x) {
#ifdef CRIMP_SIMT
  return half_from_float(x);
#else
  std::uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
#endif
}

// As kernel arguments have them: without padding (the executor takes what looks like an address for a pointer).
struct In {
  const void* at = nullptr;
  std::uint32_t type = 0, end = 0;
  In() = default;
  explicit In(const ConstValues& values) : at(values.at), type(static_cast<std::uint32_t>(values.type)) {}
  __device__ In(const void* values, std::uint32_t of) : at(values), type(of) {}
  __device__ bool is(Dtype t) const { return type == static_cast<std::uint32_t>(t); }
  __device__ bool halves() const { return is(Dtype::f16) || is(Dtype::bf16); }
  __device__ std::size_t element() const { return is(Dtype::f32) ? 4 : halves() ? 2 : 8; }
  __device__ In operator+(std::uint64_t elements) const {
    return {static_cast<const std::uint8_t*>(at) + elements * element(), type};
  }
  // Whether four neighbours can be had at once; of float64 they are not.
  __device__ bool quads() const {
    return !is(Dtype::f64) && reinterpret_cast<std::uintptr_t>(at) % (is(Dtype::f32) ? 16 : 8) == 0;
  }
  __device__ float widened(std::uint32_t half) const {
    const auto h = static_cast<std::uint16_t>(half);
    return is(Dtype::f16) ? wide_half(h) : float_from_bfloat(h);
  }
  // Four of 16 bits, which lie in two words.
  __device__ Floats<4> widened(const Floats<2>& words) const {
    const std::uint32_t low = __float_as_uint(words.v[0]), high = __float_as_uint(words.v[1]);
    return {widened(low & 0xffff), widened(low >> 16), widened(high & 0xffff), widened(high >> 16)};
  }

  __device__ float operator[](std::size_t i) const {
    if (is(Dtype::f32)) return static_cast<const float*>(at)[i];
    if (is(Dtype::f64)) return static_cast<float>(static_cast<const double*>(at)[i]);
    return widened(static_cast<const std::uint16_t*>(at)[i]);
  }

  // A piece of another type to shared memory, as float32: of 16 bits without going through registers, and widened there
  // by the same thread. A barrier is due behind it.
  __device__ void load_piece(std::uint32_t count, float* a) const {
    const std::uint32_t whole = halves() && quads() ? count / 4 : 0;
#pragma unroll 1
    for (std::uint32_t q = threadIdx.x; q < whole; q += kThreads)
      copy_half_async(a + 4 * q, static_cast<const std::uint16_t*>(at) + 4 * q);
    wait_async();
#pragma unroll 1
    for (std::uint32_t q = threadIdx.x; q < whole; q += kThreads)
      store<4>(a + 4 * q, widened(device::load<2>(a + 4 * q)));
#pragma unroll 1
    for (std::uint32_t i = 4 * whole + threadIdx.x; i < count; i += kThreads) a[i] = (*this)[i];
  }
};

struct Out {
  void* at = nullptr;
  std::uint32_t type = 0, end = 0;
  Out() = default;
  explicit Out(const Values& values) : at(values.at), type(static_cast<std::uint32_t>(values.type)) {}
  __device__ Out(void* values, std::uint32_t of) : at(values), type(of) {}
  __device__ Out operator+(std::uint64_t elements) const {
    return {static_cast<std::uint8_t*>(at) + elements * In(at, type).element(), type};
  }
  __device__ bool quads() const { return In(at, type).quads(); }

  template <int n>
  __device__ void store(std::size_t i, const Floats<n>& x) const {
    const In as(at, type);
    void* const to = static_cast<std::uint8_t*>(at) + i * as.element();
    if (as.is(Dtype::f32)) {
      device::store<n>(static_cast<float*>(to), x);
    } else if (as.halves()) {
      const auto half = [&](int k) -> std::uint32_t {
        return as.is(Dtype::f16) ? narrow_half(x.v[k]) : bfloat_from_float(x.v[k]);
      };
      if constexpr (n == 4)
        device::store<2>(static_cast<float*>(to),
                         {__uint_as_float(half(0) | half(1) << 16), __uint_as_float(half(2) | half(3) << 16)});
      else *static_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(half(0));
    } else if constexpr (n == 1) {
      *static_cast<double*>(to) = static_cast<double>(x.v[0]);
    }
  }
};

// Where a kernel stores, for code that both kinds of kernels have.
template <bool other>
using Destination = std::conditional_t<other, Out, float*>;
template <bool other>
inline Destination<other> destination(const Values& values) {
  if constexpr (other) return Out(values);
  else return values.floats();
}
__device__ inline bool in_quads(const float* out) { return aligned16(out); }
__device__ inline bool in_quads(const Out& out) { return out.quads(); }
template <int n>
__device__ inline void put(float* out, std::size_t i, const Floats<n>& x) {
  store<n>(out + i, x);
}
template <int n>
__device__ inline void put(const Out& out, std::size_t i, const Floats<n>& x) {
  out.store<n>(i, x);
}

}  // namespace crimp::device
