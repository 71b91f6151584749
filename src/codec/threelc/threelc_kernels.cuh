// 3LC in a block: a warp makes the 32 bytes of a tile, lane i byte i, from five elements a stripe apart.
#pragma once
#include "codec/coding/prefix_code_kernels.cuh"
#include "codec/coding/zero_run_kernels.cuh"
#include "codec/device/sums.cuh"
#include "codec/threelc/threelc.hpp"

namespace crimp::threelc {

// How far the base bytes are coded.
enum class Stage { base, zero_run, entropy };

// Room for a piece's bytes: those before kHead are in front of the base bytes (or their code), so that a piece is one
// run of bytes and these are aligned. Words are read whole behind the end.
inline constexpr std::uint32_t kHead = 16, kRoom = kHead + kPieceElements / 5 + 16;

template <Stage stage>
struct Coded {
  alignas(16) std::uint8_t coded[kRoom];
};
template <>
struct Coded<Stage::base> {};
template <Stage stage>
struct Decoding {};
template <>
struct Decoding<Stage::entropy> {
  PrefixDecodeTable table;
};

// Sums in registers of payloads that are a scale and the base bytes: slot j of a thread is the byte of one lane and
// tile, and its elements stand a stripe apart. A codec adds which scales are legal.
struct StripeSums : device::PieceDevice {
  static constexpr bool kInRegisters = true, kWhole = true;
  static constexpr int kWholePayloads = 4;
  static constexpr std::uint32_t kDecodeBlocks = 2;
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

template <Stage stage>
using Decodes = std::conditional_t<stage == Stage::base, StripeSums, device::PieceDevice>;

template <Stage stage>
struct Device : Decodes<stage> {
  static constexpr bool kFixedSize = stage == Stage::base;
  static constexpr std::uint32_t kDecodeBlocks = stage == Stage::base ? 2 : stage == Stage::entropy ? 3 : 4;
  struct Shared : Coded<stage>, Decoding<stage> {
    device::BlockScratch scratch;
    alignas(16) std::uint8_t bytes[kRoom];
  };
  float s;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return static_cast<std::uint32_t>(sizeof(float) + base_bytes(count));
  }

  // max|a| as bits: those of numbers without sign order as the numbers do.
  __device__ float scale_of(const float* a, std::uint32_t count, device::BlockScratch& scratch) const {
    std::uint32_t top = 0;
    for (std::uint32_t i = threadIdx.x; i < count; i += device::kThreads) top = max(top, __float_as_uint(fabsf(a[i])));
    return s * __uint_as_float(device::block_max(top, scratch));
  }

  __device__ static void quantize_byte(float* a, std::uint32_t first, std::uint32_t width, std::uint32_t count,
                                       float scale, bool keep, std::uint8_t* to) {
    int q[5];
#pragma unroll
    for (std::uint32_t j = 0; j < 5; ++j) {
      const std::uint32_t i = first + j * width;
      q[j] = 0;
      if (i < count) {
        const float x = a[i];
        q[j] = quantize(x, scale);
        if (keep && q[j] != 0) a[i] = q[j] > 0 ? x - scale : x + scale;
      }
    }
    *to = pack(q[0], q[1], q[2], q[3], q[4]);
  }
  __device__ static void quantize_piece(float* a, std::uint32_t count, float scale, bool keep, std::uint8_t* base) {
    const std::uint32_t whole = count / kTile, lane = device::lane();
    for (std::uint32_t tile = device::warp(); tile < whole; tile += device::kWarps)
      quantize_byte(a, tile * kTile + lane, kStripe, count, scale, keep, base + tile * kStripe + lane);
    if (whole * kTile < count && device::warp() == whole % device::kWarps) {
      const std::uint32_t width = stripe(whole * kTile, count);
      if (lane < width)
        quantize_byte(a, whole * kTile + lane, width, count, scale, keep, base + whole * kStripe + lane);
    }
  }

  // False in a thread that met a byte above 242.
  __device__ static bool add_byte(std::uint8_t byte, std::uint32_t first, std::uint32_t width, std::uint32_t count,
                                  float scale, float* acc) {
    std::uint32_t rest = byte;
#pragma unroll
    for (std::uint32_t j = 0; j < 5; ++j) {
      const std::uint32_t weight = j == 0   ? 81
                                   : j == 1 ? 27
                                   : j == 2 ? 9
                                   : j == 3 ? 3
                                            : 1,
                          digit = rest / weight, i = first + j * width;
      rest -= digit * weight;
      if (digit != 1 && i < count) acc[i] += digit == 0 ? -scale : scale;  // zeros change no bit, of -0 neither
    }
    return byte < kFirstRun;
  }
  __device__ static bool add_piece(const std::uint8_t* base, std::uint32_t count, float scale, float* acc) {
    const std::uint32_t whole = count / kTile, lane = device::lane();
    bool legal = true;
    for (std::uint32_t tile = device::warp(); tile < whole; tile += device::kWarps)
      legal = add_byte(base[tile * kStripe + lane], tile * kTile + lane, kStripe, count, scale, acc) && legal;
    if (whole * kTile < count && device::warp() == whole % device::kWarps) {
      const std::uint32_t width = stripe(whole * kTile, count);
      if (lane < width)
        legal = add_byte(base[whole * kStripe + lane], whole * kTile + lane, width, count, scale, acc) && legal;
    }
    return legal;
  }
  __device__ bool legal(const device::Piece&, float scale) const { return legal_scale(scale); }
  __device__ static bool legal_scale(float scale) { return __float_as_uint(scale) < 0x7f800000u; }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const float scale = scale_of(a, piece.count, own.scratch);
    quantize_piece(a, piece.count, scale, piece.keep, own.bytes + kHead);
    const auto put = [&](std::uint8_t* from, std::uint32_t bytes) {  // what stands there, behind the scale
      if (threadIdx.x == 0) device::store_bytes(from - sizeof scale, scale);
      __syncthreads();
      device::copy_bytes(out, from - sizeof scale, bytes + static_cast<std::uint32_t>(sizeof scale));
      return bytes + static_cast<std::uint32_t>(sizeof scale);
    };
    const auto n = static_cast<std::uint32_t>(base_bytes(piece.count));
    if constexpr (stage == Stage::base) {
      return put(own.bytes + kHead, n);
    } else {
      const std::uint32_t length = zero_run_encode_block(own.bytes + kHead, n, own.coded + kHead, own.scratch);
      if constexpr (stage == Stage::zero_run) return put(own.coded + kHead, length);
      const std::uint32_t bytes = prefix_encode_block(own.coded + kHead, length, n, own.bytes + kHead, own.scratch);
      if (bytes != 0) return put(own.bytes + kHead, bytes);
      if (threadIdx.x == 0) own.coded[kHead - 1] = kPlain;
      return put(own.coded + kHead - 1, length + 1);
    }
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t bytes, float* acc,
                             Shared& own) const {
    if (bytes < sizeof(float)) return false;
    const float scale = device::load_bytes<float>(in);
    if (!legal_scale(scale)) return false;
    in += sizeof scale;
    bytes -= static_cast<std::uint32_t>(sizeof scale);
    if constexpr (stage != Stage::base) {
      const auto n = static_cast<std::uint32_t>(base_bytes(piece.count));
      std::uint8_t *coded = own.coded + kHead, *base = own.bytes + kHead;
      if (bytes > n + (stage == Stage::entropy ? 1 : 0)) return false;
      if constexpr (stage == Stage::entropy) {
        if (bytes == 0) return false;
        if (in[0] == kPlain) {
          bytes -= 1;
          device::copy_bytes(coded, in + 1, bytes);
        } else {
          device::copy_bytes(base, in, bytes);
          bytes = prefix_decode_block(base, bytes, n, coded, own.table, own.scratch);
        }
      } else {
        device::copy_bytes(coded, in, bytes);
      }
      __syncthreads();
      if (!zero_run_decode_block(coded, bytes, base, n, own.scratch)) return false;
      add_piece(base, piece.count, scale, acc);
    }
    return true;
  }
};

}  // namespace crimp::threelc
