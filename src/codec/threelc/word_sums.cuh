// Base bytes in shared memory, added up in registers: what zero runs were expanded to.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/threelc/threelc.hpp"

namespace crimp::threelc {

// What a base byte's digits add, as floats without what is zero in them: 2 for the digit 0, 0 and -2, to be multiplied
// by minus half the scale, so that a zero adds -0, which changes no bit. Only a float's first byte is not zero: digit k
// is byte k of `four`, and the last one a float.
struct Digits {
  struct alignas(8) Entry {
    std::uint32_t four, last;
  };
  Entry of[256];

  // A barrier is due behind it. By warps that often have no codes to wait for.
  __device__ void fill() {
    const std::uint32_t byte = threadIdx.x - (device::kThreads - 256);
    if (byte >= 256) return;
    std::uint32_t fraction = byte * ((0xffffffffu / kFirstRun) + 1), four = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      four |= ((1 - __umulhi(fraction, 3)) & 3) << (8 * k + 6);
      fraction *= 3;
    }
    of[byte] = {four, (1 - __umulhi(fraction, 3)) << 30};
  }
  __device__ Entry operator[](std::uint32_t offset) const {  // in bytes
    return *reinterpret_cast<const Entry*>(reinterpret_cast<const std::uint8_t*>(of) + offset);
  }
  __device__ static float digit(const Entry& entry, std::uint32_t k) {
    return __uint_as_float(k == 4   ? entry.last
                           : k == 0 ? entry.four << 24
                                    : __byte_perm(entry.four, 0, 0x444 | k << 12));
  }
  // Below 2^-125 half the scale may be no float.
  __device__ static bool halves(float scale) { return __float_as_uint(scale) - 1 >= 0x00ffffffu; }
};

// Sums in registers of base bytes in shared memory: a thread has the four bytes of one word of all payloads, whose
// elements are neighbours in each of the five stripes of a tile.
struct WordSums {
  float sums[5][4];
  std::uint32_t begin, width, first, count;  // the tile and its stripes; the lane of the first byte; of the piece

  __device__ explicit WordSums(std::uint32_t of)
      : sums{}, begin(device::afresh(threadIdx.x) / (kStripe / 4) * kTile), width(begin < of ? stripe(begin, of) : 0),
        first(4 * (threadIdx.x % (kStripe / 4))), count(of) {}
  __device__ bool whole() const { return begin + kTile <= count; }
  // Sums that wait in shared memory, and those there that are on their way from `out`.
  using Waiting = device::Floats<4>[5][device::kThreads];
  __device__ void fetch(const float* out, Waiting& waiting) const {
    if (whole() && device::in_quads(out)) {
#pragma unroll
      for (std::uint32_t k = 0; k < 5; ++k)
        device::copy_async<4>(waiting[k][threadIdx.x].v, out + begin + first + k * kStripe);
    } else {
#pragma unroll 1
      for (std::uint32_t k = 0; k < 5; ++k)
#pragma unroll 1
        for (std::uint32_t b = 0; b < 4; ++b)
          if (const std::uint32_t i = begin + k * width + first + b; first + b < width && i < count)
            waiting[k][threadIdx.x].v[b] = out[i];
    }
  }
  __device__ void go_on(const Waiting& waiting) {
    device::wait_async();
#pragma unroll
    for (std::uint32_t k = 0; k < 5; ++k) {
      const device::Floats<4> x = waiting[k][threadIdx.x];
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b) sums[k][b] = x.v[b];
    }
  }
  __device__ void wait(Waiting& waiting) const {
#pragma unroll
    for (std::uint32_t k = 0; k < 5; ++k) waiting[k][threadIdx.x] = {sums[k][0], sums[k][1], sums[k][2], sums[k][3]};
  }
  // What is not float32, or is no quad, comes from there: fewer registers.
  template <class To>
  __device__ void store(const To& out, Waiting& waiting) const {
    const bool quads = whole() && device::in_quads(out);
    if constexpr (std::is_pointer_v<To>)
      if (quads) {
#pragma unroll
        for (std::uint32_t k = 0; k < 5; ++k)
          device::put<4>(out + begin + first, k * kStripe, {sums[k][0], sums[k][1], sums[k][2], sums[k][3]});
        return;
      }
    wait(waiting);
#pragma unroll 1
    for (std::uint32_t k = 0; k < 5; ++k) {
      const float* const four = waiting[k][threadIdx.x].v;
      if (!std::is_pointer_v<To> && quads) {
        device::put<4>(out, begin + k * kStripe + first, device::load<4>(four));
      } else {
#pragma unroll 1
        for (std::uint32_t b = 0; b < 4; ++b)
          if (const std::uint32_t i = begin + k * width + first + b; first + b < width && i < count)
            device::put<1>(out, i, {four[b]});
      }
    }
  }
  // Of legal bytes. All products are exact.
  template <bool halves>
  __device__ void add(std::uint32_t bytes, float scale, const Digits& digits) {
    const float by = halves ? -0.5f * scale : -scale;
#pragma unroll
    for (std::uint32_t b = 0; b < 4; ++b) {
      const Digits::Entry entry = digits[__dp4a(bytes, 8u << (8 * b), 0u)];
#pragma unroll
      for (std::uint32_t k = 0; k < 5; ++k) {
        const float digit = Digits::digit(entry, k);
        sums[k][b] = fmaf(halves ? digit : 0.5f * digit, by, sums[k][b]);
      }
    }
  }
};

}  // namespace crimp::threelc
