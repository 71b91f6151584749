// Norms and the rotation of floats, whose bits depend on the order of additions: strides ascend as on the host. A warp
// does the strides below 128 of tiles of 128, four neighbours a lane, in registers and by shuffles; then a thread has
// the same place of a block's eight tiles and does the others.
#pragma once
#include "codec/thc/thc_blocks.cuh"

namespace crimp::thc {

// By a warp; in all lanes.
__device__ inline float norm_of(const float* a, std::uint32_t count) {
  // Lanes have two neighbours of each 64: partial sums 2 lane and 2 lane + 1.
  const auto sums = [&](float up, float& low, float& high, float& top) {
    low = high = top = 0.0f;
    std::uint32_t i = 2 * device::lane();
#pragma unroll 4
    for (; i + 1 < count; i += kSumLanes) {
      const auto two = device::load<2>(a + i);
      const float x = two.v[0] * up, z = two.v[1] * up;
      top = fmaxf(fmaxf(top, fabsf(x)), fabsf(z));
      low += x * x;
      high += z * z;
    }
    if (i < count) {  // the last one of an odd number
      const float x = a[i] * up;
      top = fmaxf(top, fabsf(x));
      low += x * x;
    }
  };
  float low, high, top;
  sums(1.0f, low, high, top);
  const float largest = __uint_as_float(__reduce_max_sync(device::kAllLanes, __float_as_uint(top)));
  if (largest == 0.0f) return 0.0f;
  float back = 1.0f;
  if (largest < kSmall || !(largest < kLarge)) {
    const bool small = largest < kSmall;
    sums(small ? kUp : kDown, low, high, top);
    back = small ? kDown : kUp;
  }
#pragma unroll
  for (int by = device::kWarp / 2; by > 0; by /= 2) {
    low += __shfl_xor_sync(device::kAllLanes, low, by);
    high += __shfl_xor_sync(device::kAllLanes, high, by);
  }
  const float norm = sqrtf(low + high) * back;
  return norm < kLeastNorm ? 0.0f : norm < kMostNorm ? norm : kMostNorm;
}

__device__ inline void butterfly(float& a, float& b) {
  const float sum = a + b;
  b = a - b;
  a = sum;
}
// Strides 1 to 64 of tiles, of each of which a lane has four neighbours. other - x and x + other are one
// multiplication and addition, whose product is exact.
template <int n>
__device__ inline void rotate_tiles(Four (&x)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) {
    butterfly(x[i].v[0], x[i].v[1]);
    butterfly(x[i].v[2], x[i].v[3]);
    butterfly(x[i].v[0], x[i].v[2]);
    butterfly(x[i].v[1], x[i].v[3]);
  }
#pragma unroll
  for (std::uint32_t by = 1; by < device::kWarp; by *= 2) {
    const float sign = device::lane() & by ? -1.0f : 1.0f;
#pragma unroll
    for (int k = 0; k < 4 * n; ++k) {
      float& own = x[k / 4].v[k % 4];
      own = fmaf(own, sign, __shfl_xor_sync(device::kAllLanes, own, static_cast<int>(by)));
    }
  }
}
// The other strides, of one place of all tiles.
__device__ inline void rotate_places(float (&v)[kTiles]) {
#pragma unroll
  for (std::uint32_t stride = 1; stride < kTiles; stride *= 2)
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j)
      if (!(j & stride)) butterfly(v[j], v[j + stride]);
}

}  // namespace crimp::thc
