// What an encoder does with a piece's memory: adds it to the values, and stores what is left.
#pragma once
#include "codec/device/piece.cuh"

namespace crimp::device {

// Adds its memory to a piece in shared memory, which may still be on its way there, and stores what of the memory is
// final with that. Pointers are to the piece's first element.
template <Entry entry, int most>
__device__ inline void add_memory(const FeedbackPolicy& policy, const GroupEntry& at, std::uint32_t count, bool quads,
                                  float* a) {
  if constexpr (entry == Entry::values) {
    wait_async();
  } else {
    constexpr int at_once = entry == Entry::corrected ? 1 : most;
    Floats<4> in[at_once], momentum[at_once];
    in_batches<at_once>(
        count, quads,
        [&](auto n, int j, std::size_t i) {
          load_front<n>(in[j], at.in + i);
          if constexpr (entry == Entry::corrected) load_front<n>(momentum[j], at.momentum_in + i);
        },
        [&](auto n, int j, std::size_t i) {
          if (j == 0) wait_async();
          Floats<n> x = load<n>(a + i), u;
#pragma unroll
          for (int k = 0; k < n; ++k)
            x.v[k] = element(entry, policy, x.v[k], in[j].v[k], entry == Entry::corrected ? momentum[j].v[k] : 0.0f,
                             &u.v[k]);
          if constexpr (entry == Entry::averaged) store<n>(at.out + i, x);
          if constexpr (entry == Entry::corrected) store<n>(at.momentum_out + i, u);
          store<n>(a + i, x);
        });
  }
}
template <int... j>
__device__ inline void copy_whole(float* to, const float* from, std::integer_sequence<int, j...>) {
  (copy_async<4, j * 4 * int{kThreads}>(to, from), ...);
}
// Likewise of the values, with their memory. whole: whole pieces have a way of their own.
template <Entry entry, int most, bool whole = false>
__device__ inline void load_piece(const FeedbackPolicy& policy, const float* values, const GroupEntry& at,
                                  std::uint32_t count, bool quads, float* a) {
  if (whole && quads && count == kPieceElements)
    copy_whole(a + 4 * threadIdx.x, values + 4 * threadIdx.x, std::make_integer_sequence<int, kQuads>());
  else
    in_batches<kQuads>(
        count, quads, [&](auto n, int, std::size_t i) { copy_async<n>(a + i, values + i); },
        [](auto, int, std::size_t) {});
  add_memory<entry, most>(policy, at, count, quads, a);
}

// Stores what encoding has left of a piece.
__device__ inline void store_left(const float* a, std::uint32_t count, bool quads, float* out) {
  Floats<4> left[kQuads];
  in_batches<kQuads>(
      count, quads, [&](auto n, int j, std::size_t i) { load_front<n>(left[j], a + i); },
      [&](auto n, int j, std::size_t i) { store_front<n>(out + i, left[j]); });
}
// What was sent loses its momentum.
__device__ inline void mask_momentum(const float* a, std::uint32_t count, bool quads, const float* in,
                                     float* momentum) {
  Floats<4> r[2], u[2];
  in_batches<2>(
      count, quads,
      [&](auto n, int j, std::size_t i) {
        load_front<n>(r[j], in + i);
        load_front<n>(u[j], momentum + i);
      },
      [&](auto n, int j, std::size_t i) {
        const Floats<n> left = load<n>(a + i);
        Floats<n> to;
#pragma unroll
        for (int k = 0; k < n; ++k) to.v[k] = left.v[k] == r[j].v[k] + u[j].v[k] ? u[j].v[k] : 0.0f;
        store<n>(momentum + i, to);
      });
}

// Likewise of a codec that selects: elements that were not sent have left == r + u and need nothing, unless that is not
// a number. Other threads may have had them in between: a barrier is due before the residual is stored, which may be
// where it was loaded from.
template <class Device>
__device__ inline void mask_sent(const Device& device, const typename Device::Shared& own, const float* a,
                                 std::uint32_t count, bool quads, const float* in, float* momentum) {
  device.for_sent(own, count, [&](std::uint32_t i) {
    if (!(a[i] == in[i] + momentum[i])) momentum[i] = 0.0f;
  });
  for_elements(count, quads, [&](auto n, std::uint32_t i) {
    const Floats<n> left = load<n>(a + i);
#pragma unroll
    for (int k = 0; k < n; ++k)
      if (left.v[k] != left.v[k]) momentum[i + k] = 0.0f;
  });
}

}  // namespace crimp::device
