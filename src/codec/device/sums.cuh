// Decoding with the sums in registers: a thread has the same elements of all payloads, in kSlots slots of kEach, adds
// all payloads of one slot and goes on to the next. A codec is a QuadSums or a StripeSums (threelc_kernels.cuh) and
// supplies
//
//   struct Head;                                                      // what all elements have in common
//   struct Slot;                                                      // what a slot needs of a payload
//   struct DecodeShared;                                              // shared memory that all payloads have in common
//   __device__ void prepare(DecodeShared&) const;                     // once; ends with a barrier where it writes
//   __device__ Head head(const Piece&, const std::uint8_t* in) const;
//   __device__ Slot fetch(const Piece&, const std::uint8_t* in, std::uint32_t j) const;   // loads, of [in, in + bytes)
//   __device__ bool legal(const Piece&, const Head&) const;
//   __device__ bool add(const Piece&, const Head&, const Slot&, std::uint32_t j, float (&sums)[kEach],
//                       const DecodeShared&) const;
//
// and of its base QuadSums or StripeSums begins, load_slot, store_slot, load_whole and store_whole. Where kWhole, a
// thread has kWholeSlots slots of a whole piece at once, if its bytes begin at a multiple of four in all payloads:
//
//   bool with_whole(Work&& work) const;   // true behind work(Whole), or false: there is none for these parameters
//   struct Whole {
//     struct Head; struct Slot;
//     __device__ Head head(const std::uint8_t* in) const;                        // loads
//     __device__ Slot fetch(const std::uint8_t* in, std::uint32_t j) const;
//     __device__ bool open(const Device&, Head&) const;                          // makes of it what add takes
//     __device__ bool add(const Head&, const Slot&, std::uint32_t j, float (&sums)[kEach], const DecodeShared&) const;
//   };
//
// All lanes of a warp call a Whole's functions together; the others' they may leave one by one.
//
// legal and add are false where they see something malformed; what is malformed has to be seen by one thread at least.
// Slots without an element are fetched and added as well, and have no effect.
#pragma once
#include "codec/device/piece_kernels.cuh"

namespace crimp::device {

// How many of `count` elements are at and behind element i.
__device__ inline std::uint32_t behind(std::size_t i, std::uint32_t count) {
  return static_cast<std::uint32_t>(i) < count ? count - static_cast<std::uint32_t>(i) : 0;
}

// Slot j of a thread has four neighbours, as for_elements where `quads`.
struct QuadSums : PieceDevice {
  static constexpr bool kInRegisters = true;
  static constexpr std::uint32_t kSlots = kQuads, kEach = 4;
  struct Head {};
  struct DecodeShared {};

  __device__ static std::size_t first_of(std::uint32_t j) { return std::size_t{4 * threadIdx.x} + 4 * j * kThreads; }
  __device__ static bool begins(std::uint32_t j, std::uint32_t count) { return behind(first_of(j), count) > 0; }
  __device__ static void load_slot(const float* out, std::uint32_t count, std::uint32_t j, float (&sums)[kEach]) {
    const std::size_t i = first_of(j);
    const std::uint32_t left = behind(i, count);
    if (left >= 4 && aligned16(out)) {
      const Floats<4> x = load<4>(out + i);
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k) sums[k] = x.v[k];
    } else {
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (k < left) sums[k] = out[i + k];
    }
  }
  template <class To>
  __device__ static void store_slot(const To& out, std::uint32_t count, std::uint32_t j, const float (&sums)[kEach]) {
    const std::size_t i = first_of(j);
    const std::uint32_t left = behind(i, count);
    if (left >= 4 && in_quads(out)) {
      put<4>(out, i, {sums[0], sums[1], sums[2], sums[3]});
    } else {
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (k < left) put<1>(out, i + k, {sums[k]});
    }
  }
  // Of whole pieces, where four can be had at once.
  __device__ static void load_whole(const float* out, std::uint32_t j, float (&sums)[kEach]) {
    const Floats<4> x = load<4>(out + first_of(j));
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) sums[k] = x.v[k];
  }
  template <class To>
  __device__ static void store_whole(const To& out, std::uint32_t j, const float (&sums)[kEach]) {
    put<4>(out, first_of(j), {sums[0], sums[1], sums[2], sums[3]});
  }
  __device__ void prepare(DecodeShared&) const {}
  __device__ bool legal(const Piece&, const Head&) const { return true; }
  __device__ Head head(const Piece&, const std::uint8_t*) const { return {}; }
};

// The word at a multiple of four.
__device__ inline std::uint32_t word_at(const std::uint8_t* p) { return *reinterpret_cast<const std::uint32_t*>(p); }

// A word of the bytes [i, i + 4) of [0, count), i % 4 = 0; those behind the end are 0.
__device__ inline std::uint32_t load_word(const std::uint8_t* bytes, std::size_t i, std::uint32_t count) {
  const std::uint32_t left = behind(i, count);
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(bytes) % 4 == 0) return word_at(bytes + i);
  std::uint32_t word = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    if (k < left) word |= static_cast<std::uint32_t>(bytes[i + k]) << (8 * k);
  return word;
}
// The 16-bit codes [i, i + 4) of [0, count), i % 4 = 0, the first at an even address; those behind the end are 0.
__device__ inline std::uint64_t load_halves(const std::uint8_t* in, std::size_t i, std::uint32_t count) {
  const auto* codes = reinterpret_cast<const std::uint16_t*>(in);
  const std::uint32_t left = behind(i, count);
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(in) % 8 == 0)
    return *reinterpret_cast<const std::uint64_t*>(codes + i);
  std::uint64_t four = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    if (k < left) four |= static_cast<std::uint64_t>(codes[i + k]) << (16 * k);
  return four;
}

}  // namespace crimp::device
