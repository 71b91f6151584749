// Products of small matrices by a warp.
#pragma once
#include "codec/device/block.cuh"
#include "core/half.hpp"

namespace crimp::device {

// c += a b on the tensor cores: a is 16 x 16 and b 16 x 8 halves, two in a register, c 16 x 8 floats or halves. Where a
// lane's elements are: PTX's mma.m16n8k16. Only for sums that are exact, of which no order shows.
#ifdef CRIMP_SIMT
// use(place, sum) for the four elements of c that a lane has.
template <class Use>
inline void matrix_product(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, Use&& use) {
  const auto wide = [](std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; };
  const auto half = [](std::uint64_t of, int i) { return float_from_half(static_cast<std::uint16_t>(of >> (16 * i))); };
  const int row = static_cast<int>(lane() / 4), column = static_cast<int>(lane() % 4 * 2);
  float sum[4] = {};
  for (int k = 0; k < 4; ++k) {
    const std::uint64_t low = __shfl_sync(kAllLanes, wide(a[0], a[1]), 4 * row + k),
                        high = __shfl_sync(kAllLanes, wide(a[2], a[3]), 4 * row + k);
    for (int j = 0; j < 2; ++j) {
      const std::uint64_t b = __shfl_sync(kAllLanes, wide(b0, b1), 4 * (column + j) + k);
      for (int i = 0; i < 2; ++i)
        for (int v = 0; v < 2; ++v)
          sum[2 * i + j] += half(low, 2 * i + v) * half(b, v) + half(high, 2 * i + v) * half(b, 2 + v);
    }
  }
  for (int i = 0; i < 4; ++i) use(i, sum[i]);
}
#endif
__device__ inline void add_product(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float (&c)[4]) {
#ifdef CRIMP_SIMT
  matrix_product(a, b0, b1, [&](int i, float sum) { c[i] += sum; });
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
__device__ inline void add_product(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                   std::uint32_t (&c)[2]) {
#ifdef CRIMP_SIMT
  matrix_product(a, b0, b1, [&](int i, float sum) {
    const int at = i % 2 * 16;
    const float was = float_from_half(static_cast<std::uint16_t>(c[i / 2] >> at));
    c[i / 2] = (c[i / 2] & ~(0xffffu << at)) | static_cast<std::uint32_t>(half_from_float(was + sum)) << at;
  });
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
               : "+r"(c[0]), "+r"(c[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace crimp::device
