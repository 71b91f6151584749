// Base bytes in device memory, added up in registers: 3LC without zero runs, and TernGrad.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/threelc/threelc.hpp"

namespace crimp::threelc {

// Sums in registers of payloads that are a scale and the base bytes: slot j of a thread is the byte of one lane and
// tile, and its elements stand a stripe apart. A codec adds which scales are legal.
struct StripeSums : device::PieceDevice {
  static constexpr bool kInRegisters = true, kWhole = true;
  static constexpr std::uint32_t kWholeSlots = 2;
  static constexpr int kWholePayloads = 4;
  static constexpr std::uint32_t kDecodeBlocks = 3;
  static constexpr std::uint32_t kSlots = kPieceElements / kTile / device::kWarps, kEach = 5;
  static_assert(kSlots * device::kWarps * kTile == kPieceElements);
  using Head = float;
  using Slot = std::uint32_t;
  struct DecodeShared {};

  // work(k, i) for the elements of slot j.
  template <class Work>
  __device__ static void for_slot(std::uint32_t count, std::uint32_t j, Work&& work) {
    const std::uint32_t begin = tile_of(j) * kTile;
    if (begin >= count) return;
    const std::uint32_t width = stripe(begin, count);
    if (device::lane() >= width) return;
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k)
      if (const std::uint32_t i = begin + device::lane() + k * width; i < count) work(k, i);
  }
  __device__ static std::uint32_t tile_of(std::uint32_t j) { return device::warp() + j * device::kWarps; }
  __device__ static bool begins(std::uint32_t j, std::uint32_t count) { return tile_of(j) * kTile < count; }
  __device__ static void load_slot(const float* out, std::uint32_t count, std::uint32_t j, float (&sums)[kEach]) {
    for_slot(count, j, [&](std::uint32_t k, std::uint32_t i) { sums[k] = out[i]; });
  }
  template <class To>
  __device__ static void store_slot(const To& out, std::uint32_t count, std::uint32_t j, const float (&sums)[kEach]) {
    for_slot(count, j, [&](std::uint32_t k, std::uint32_t i) { device::put<1>(out, i, {sums[k]}); });
  }
  __device__ void prepare(DecodeShared&) const {}
  __device__ Head head(const device::Piece&, const std::uint8_t* in) const {
    return __uint_as_float(device::load_word(in, 0, sizeof(float)));
  }
  __device__ Slot fetch(const device::Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::uint32_t at = tile_of(j) * kStripe + device::lane();
    return at < base_bytes(piece.count) ? in[sizeof(float) + at] : kZeroByte;
  }
  __device__ bool add(const device::Piece&, Head scale, Slot byte, std::uint32_t, float (&sums)[kEach],
                      const DecodeShared&) const {
    return add_digits(byte, scale, sums);
  }

  struct Whole {
    using Head = StripeSums::Head;
    using Slot = std::uint32_t;
    __device__ Head head(const std::uint8_t* in) const { return __uint_as_float(device::word_at(in)); }
    __device__ Slot fetch(const std::uint8_t* in, std::uint32_t j) const {
      return (in + sizeof(float) + threadIdx.x)[j * device::kThreads];
    }
    template <class Codec>
    __device__ static bool open(const Codec& codec, Head scale) {
      return codec.legal({kPieceElements, false, {}, {}, 0}, scale);
    }
    __device__ bool add(Head scale, Slot byte, std::uint32_t, float (&sums)[kEach], const DecodeShared&) const {
      return add_digits(byte, scale, sums);
    }
  };
  template <class Work>
  __device__ static bool with_whole(Work&& work) {
    work(Whole());
    return true;
  }
  __device__ static std::uint32_t first() { return device::warp() * kTile + device::lane(); }
  __device__ static void load_whole(const float* out, std::uint32_t j, float (&sums)[kEach]) {
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k) sums[k] = (out + first())[j * device::kWarps * kTile + k * kStripe];
  }
  template <class To>
  __device__ static void store_whole(const To& out, std::uint32_t j, const float (&sums)[kEach]) {
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k)
      device::put<1>(out, std::size_t{first()} + j * device::kWarps * kTile + k * kStripe, {sums[k]});
  }

  // The digits of byte / 243, the first one first, are what multiplying by three shifts out of a fraction of 32 bits;
  // 0x4b000000 makes the float 2^23 + digit of them. What is added is scale, -scale, or, in place of a zero, -0, which
  // changes no bit, of -0 neither.
  __device__ static bool add_digits(std::uint32_t byte, float scale, float (&sums)[kEach]) {
    const std::uint64_t exponent = device::unknown(std::uint64_t{0x4b000000} << 32);
    std::uint32_t fraction = byte * ((0xffffffffu / kFirstRun) + 1);
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k) {
      const std::uint64_t shifted = std::uint64_t{fraction} * 3 + exponent;
      fraction = static_cast<std::uint32_t>(shifted);
      sums[k] = fmaf(0x1.000002p23f - __uint_as_float(static_cast<std::uint32_t>(shifted >> 32)), -scale, sums[k]);
    }
    return byte < kFirstRun;
  }
};
static_assert(kStripe == device::kWarp && kFirstRun == 243);

}  // namespace crimp::threelc
