// A byte per element behind a head (scales), in a block: natural, 8bit and fp8. Their bytes are made in shared memory
// and leave it, or come to it, 16 at a time, whatever their address. A codec supplies
//
//   struct Type {
//     static constexpr bool kDithered, kChecked;                  // encoding takes random bits; not every byte is
//     legal static constexpr std::uint32_t kMostHead; struct Shared { ... };
//     __device__ std::uint32_t head_bytes(std::uint32_t count) const;
//     __device__ void measure(const float* a, std::uint32_t count, std::uint8_t* head, Shared&) const;        // writes
//     the head
//     __device__ bool open(const std::uint8_t* head, std::uint32_t count, Shared&) const;                     // in
//     every thread the same: whether it is legal
//     __device__ auto at(std::uint32_t i, const std::uint8_t* head, const Shared&) const;                     // what
//     the elements i to i + 3 have in common (i % 4 = 0):
//         code(float a, std::uint32_t random), value(std::uint32_t code), legal(std::uint32_t code)
//   };
// measure and open are called by all threads, and end with a barrier where they write what other threads read.
#pragma once
#include "codec/coding/dither_kernels.cuh"
#include "codec/device/piece_kernels.cuh"

namespace crimp::device {

template <class Type>
struct ByteDevice : PieceDevice {
  struct Shared {
    typename Type::Shared own;
    alignas(16) std::uint8_t bytes[(3 + Type::kMostHead + kPieceElements + 15) / 16 * 16];
  };
  template <int n>
  struct alignas(n) Codes {
    std::uint8_t v[n];
  };
  Type type;

  __device__ std::uint32_t bytes(std::uint32_t count) const { return type.head_bytes(count) + count; }
  // The codes begin at a multiple of four.
  __device__ static std::uint8_t* head_of(Shared& own, std::uint32_t head_bytes) {
    return own.bytes + (-head_bytes & 3);
  }

  __device__ std::uint32_t encode(const Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t head_bytes = type.head_bytes(piece.count);
    std::uint8_t *head = head_of(own, head_bytes), *codes = head + head_bytes;
    type.measure(a, piece.count, head, own.own);
    if constexpr (Type::kDithered) {
      const auto with = type.at(0, head, own.own);
      const std::uint32_t tiles = (piece.count + dither::kTile - 1) / dither::kTile;
      for (std::uint32_t tile = threadIdx.x / dither::kLanes; tile < tiles; tile += dither::kHalves)
        dither::for_tile(piece.counter, tile, true, [&](std::uint32_t in_tile, std::uint32_t, std::uint32_t random) {
          const std::uint32_t i = tile * dither::kTile + in_tile;
          if (i >= piece.count) return;
          const float x = a[i];
          const std::uint32_t code = with.code(x, random);
          codes[i] = static_cast<std::uint8_t>(code);
          if (piece.keep) a[i] = x - with.value(code);
        });
    } else {
      for_elements(piece.count, true, [&](auto n, std::uint32_t i) {
        const auto with = type.at(i, head, own.own);
        auto x = load<n>(a + i);
        Codes<n> to;
#pragma unroll
        for (int k = 0; k < n; ++k) {
          const std::uint32_t code = with.code(x.v[k], 0);
          to.v[k] = static_cast<std::uint8_t>(code);
          x.v[k] -= with.value(code);
        }
        *reinterpret_cast<Codes<n>*>(codes + i) = to;
        if (piece.keep) store<n>(a + i, x);
      });
    }
    __syncthreads();
    copy_bytes(out, head, bytes(piece.count));
    return bytes(piece.count);
  }

  __device__ bool decode_add(const Piece& piece, const std::uint8_t* in, std::uint32_t, float* acc, Shared& own) const {
    const std::uint32_t head_bytes = type.head_bytes(piece.count);
    std::uint8_t *head = head_of(own, head_bytes), *codes = head + head_bytes;
    copy_bytes(head, in, bytes(piece.count));
    __syncthreads();
    if (!type.open(head, piece.count, own.own)) return false;
    bool legal = true;
    for_elements(piece.count, true, [&](auto n, std::uint32_t i) {
      const auto with = type.at(i, head, own.own);
      auto x = load<n>(acc + i);
      const Codes<n> from = *reinterpret_cast<const Codes<n>*>(codes + i);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        if constexpr (Type::kChecked) legal = legal && with.legal(from.v[k]);
        x.v[k] += with.value(from.v[k]);
      }
      store<n>(acc + i, x);
    });
    if constexpr (Type::kChecked) return !block_any(!legal);
    return true;
  }
};

}  // namespace crimp::device
