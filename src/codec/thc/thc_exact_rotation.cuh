// What a block's indices decode to, in a warp: integers of up to 16 bits, exact in any order. An element's address is
// five bits of a row and five of a column, and H X H, which is the rotation, are 20 products on the tensor cores. The
// first leaves its elements where the second wants them.
#pragma once
#include "codec/device/matrix.cuh"
#include "codec/thc/thc_blocks.cuh"

namespace crimp::thc {

struct ExactRotation : DeviceTables {
  using DeviceTables::DeviceTables;

  // Of a decoded block: 1 / its coordinates, and what its values' bytes are too large by in all.
  struct Dimension {
    float inverse, excess;
  };
  __device__ Dimension dimension_of(std::uint32_t tiles) const {
    const std::uint32_t d = tiles * kTile;
    return {1.0f / static_cast<float>(d), static_cast<float>(middle * d)};
  }

  // Rows and columns of a decoded block: element bits 4, 5, 7, 0, 6 are a row's, lowest first, 8, 2, 3, 1, 9 a
  // column's. So a lane comes by whole words of indices, and gets four neighbours.
  __device__ static std::uint32_t first_tile(std::uint32_t lane) { return lane / 2 % 2 + lane / 4 % 2 * 2; }
  __device__ static std::uint32_t first_word(
      std::uint32_t lane) {  // of four: 4 and 4 kTile / 8 words behind each other
    return first_tile(lane) * kWords + lane % 2 * 8 + lane / 8;
  }

  // What half a word of indices stand for: the values' bytes.
  struct Bytes {
    std::uint32_t low, high;
  };
  __device__ Bytes values_of(std::uint32_t word) const {
    const std::uint32_t at = word & 0x77777777, upper = (word >> 1 & 0x44444444) | 0x32103210;
    const auto half = [&](std::uint32_t by) {
      return device::pick_bytes(device::pick_bytes(values[0], values[1], at >> by),
                                device::pick_bytes(values[2], values[3], at >> by), upper >> by);
    };
    return {half(0), half(16)};
  }
  // What a lane has of H, {h, h, h, -h}: as the left side of the first products, in pairs as the right side of the
  // others.
  struct Signed {
    std::uint32_t h[4];
  };
  __device__ static Signed signed_of(std::uint32_t lane) {
    const std::uint32_t group = lane / 4, in_group = lane % 4;
    // Bytes are halves below the smallest normal one, in units of 2^-24; H is 2^12 or -2^12.
    const std::uint32_t h =
        0x6c006c00 | ((__popc(group & (2 * in_group)) & 1 ? 0x80008000u : 0) ^ (group & 1 ? 0x80000000u : 0));
    return {{h, h, h, h ^ 0x80008000u}};
  }
  // The first element of a lane, and which ones use() below is told of.
  __device__ static std::uint32_t first_element(std::uint32_t lane) {
    return 4 * (lane % 4) + 16 * (lane / 4 % 4) + 128 * (lane / 16);
  }
  __device__ static constexpr std::uint32_t element(std::uint32_t m, std::uint32_t z, std::uint32_t i) {
    return 64 * m + 512 * z + kBlock / 4 * i;
  }
  // Where barriers of a warp keep the compiler from having more on its way than registers hold. Found by trying: with
  // another one some decoder spills.
  enum class Apart { words, rows };
  template <class To>
  __device__ static constexpr Apart apart_with() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    if (std::is_same_v<To, float*>) return Apart::words;
#endif
    return Apart::rows;
  }
  // A warp: use(m, z, j, sums) for what the indices of a block decode to, in units of the norm's worth and as the
  // rotation has it, before signs: sums[2 k + i] is element first_element + element(m, z, i) + 2 j + k. `aside` is the
  // lane's.
  template <Apart apart, class Use>
  __device__ void rotate_back(std::uint32_t lane, const std::uint32_t (&words)[4], const Signed& by,
                              const float& excess, uint4& aside, Use&& use) const {
    // Row bit 4 first, by sums and differences of bytes: what follows are sums of 16 that a half has exactly.
    std::uint32_t half[4];
#pragma unroll
    for (int q = 0; q < 4; q += 2) {
      if (apart == Apart::words) __syncwarp();
      const std::uint32_t a = words[q], b = words[q + 1];
      const Bytes first = values_of((a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0)),
                  second = values_of((a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4);
      half[q] = first.low + second.low;
      half[q + 1] = first.high + second.high;
      reinterpret_cast<uint2*>(&aside)[q / 2] =
          make_uint2(first.low - second.low + 0x40404040, first.high - second.high + 0x40404040);
    }
#pragma unroll
    for (std::uint32_t m = 0; m < 2; ++m) {
      if (apart == Apart::rows) __syncwarp();
      if (m != 0) {
        const uint4 four = aside;
        half[0] = four.x, half[1] = four.y, half[2] = four.z, half[3] = four.w;
      }
      std::uint32_t rows[4][2] = {};  // halves of 16 rows, of 8 columns
#pragma unroll
      for (int q = 0; q < 4; ++q)
        device::add_product(by.h, device::pick_bytes(half[q], 0, 0x4140), device::pick_bytes(half[q], 0, 0x4342),
                            rows[q]);
      const std::uint32_t low[4] = {rows[0][0], rows[0][1], rows[1][0], rows[1][1]};
      std::uint32_t high[4] = {rows[2][0], rows[2][1], rows[3][0], rows[3][1]};
      float of_low[2][4] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) device::add_product(low, by.h[2 * j], by.h[2 * j + 1], of_low[j]);
#pragma unroll
      for (int z = 0; z < 2; ++z) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float sums[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i] = of_low[j][i];
          device::add_product(high, by.h[2 * j], by.h[2 * j + 1], sums);
          // What bytes have too much is alike in all, so all in one element.
          if (z == 0 && j == 0 && lane == 0) sums[0] -= m ? 0x1p15f : excess;
          use(m, z, j, sums);
        }
        // Then the columns that have the other half of these with the other sign.
#pragma unroll
        for (int i = 0; i < 4; ++i) high[i] ^= 0x80008000u;
      }
    }
  }
  // with_sign(x, signs_of(m), sign_at(z, i, k)) for the k-th of four neighbours.
  __device__ static std::uint32_t signs_of(const Signs& signs, std::uint32_t block, std::uint32_t e0, std::uint32_t m) {
    return four_signs(signs, block, e0 % kTile + 64 * m) << (1 - e0 / kTile);
  }
  __device__ static constexpr int sign_at(int z, int i, int k) { return 30 - 4 * z - 8 * k - 2 * i; }
};

}  // namespace crimp::thc
