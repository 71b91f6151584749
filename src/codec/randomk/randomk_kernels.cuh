// Random-k in a block: a thread draws the element of a stratum. Nothing but values is sent.
#pragma once
#include "codec/coding/dither.hpp"
#include "codec/device/piece_kernels.cuh"
#include "codec/randomk/randomk.hpp"
#include "codec/sparse/sparse.hpp"

namespace crimp::randomk {

struct Device : device::PieceDevice {
  struct Shared {};
  float ratio;
  bool scale;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return static_cast<std::uint32_t>(sizeof(float) * share_of(ratio, count));
  }

  // work(i, j, width) for the element i that is drawn from stratum j of that width.
  template <class Work>
  __device__ void for_drawn(const device::Piece& piece, Work&& work) const {
    const std::uint32_t n = piece.count, k = bytes(n) / static_cast<std::uint32_t>(sizeof(float));
    RandomCounter counter = piece.counter;
    counter.rank = 0;
    for (std::uint32_t j = threadIdx.x; j < k; j += device::kThreads) {
      const std::uint32_t word =
          dither::bits16(counter, dither::kShared, 2 * j) | dither::bits16(counter, dither::kShared, 2 * j + 1) << 16;
      work(element(j, n, k, word), j, width(j, n, k));
    }
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared&) const {
    auto* to = reinterpret_cast<float*>(out);  // all pieces have whole floats
    const bool scales = scale && piece.counter.rank < kSums;
    for_drawn(piece, [&](std::uint32_t i, std::uint32_t j, std::uint32_t wide) {
      const float x = a[i], sent = scales ? scaled(x, wide) : x;
      to[j] = sent;
      if (piece.keep) a[i] = x - sent;
    });
    return bytes(piece.count);
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t, float* acc,
                             Shared&) const {
    const auto* from = reinterpret_cast<const float*>(in);
    bool finite = true;
    for_drawn(piece, [&](std::uint32_t i, std::uint32_t j, std::uint32_t) {
      const float x = from[j];
      finite = finite && (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
      acc[i] += x;
    });
    return !device::block_any(!finite);
  }
};

}  // namespace crimp::randomk
