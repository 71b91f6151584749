// INCEPTIONN in a block: warp w has the w-th run of words of 32 elements, one ballot a word and bit plane. Bytes and
// halves are gathered in shared memory; floats, rare within (-1, 1), move between the piece and the payload directly.
#pragma once
#include "codec/coding/bit_plane.hpp"
#include "codec/device/piece_kernels.cuh"
#include "codec/inceptionn/inceptionn.hpp"

namespace crimp::inceptionn {

struct Device : device::PieceDevice {
  static constexpr bool kFixedSize = false;
  static constexpr std::uint32_t kWords = kPieceElements / device::kWarp, kField = 20;
  static_assert(kPieceElements % device::kWarp == 0 && kPieceElements < 1u << kField && 3 * kField <= 64);
  struct Shared {
    device::BlockScratch scratch;
    alignas(16) std::uint32_t low[kWords], high[kWords];  // bits of the classes; as bytes they are the payload's planes
    alignas(16) std::uint8_t codes[2 * kPieceElements + 16];  // bytes, then, from an even address, halves
  };
  Limits limits;

  // How many bytes, halves and floats, in fields of kField bits.
  struct Counts {
    std::uint64_t all;
    __device__ std::uint32_t of(std::uint32_t c) const {
      return static_cast<std::uint32_t>(all >> (c - kByte) * kField) & ((1u << kField) - 1);
    }
    __device__ std::uint32_t halves_at() const { return (of(kByte) + 1) / 2 * 2; }
    __device__ std::uint32_t bytes() const { return of(kByte) + 2 * of(kHalf) + 4 * of(kFloat); }
  };
  __device__ static std::uint64_t counts_in(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint64_t>(__popc(low & ~high)) | static_cast<std::uint64_t>(__popc(high & ~low)) << kField |
           static_cast<std::uint64_t>(__popc(low & high)) << (2 * kField);
  }
  // The words [first, end) of this warp.
  struct Run {
    std::uint32_t first, end;
  };
  __device__ static Run run_of(std::uint32_t words) {
    const std::uint32_t each = (words + device::kWarps - 1) / device::kWarps, first = device::warp() * each;
    return {first < words ? first : words, first + each < words ? first + each : words};
  }
  // work(i, c, k) for the elements i of this warp, with their class and the place k among its members. `before`: the
  // members in front of the warp's.
  template <class Work>
  __device__ static void for_elements(const Run& run, std::uint64_t before, const Shared& own, Work&& work) {
    const std::uint32_t lane = device::lane(), below = (1u << lane) - 1;
    for (std::uint32_t w = run.first; w < run.end; ++w) {
      const std::uint32_t low = own.low[w], high = own.high[w], c = (low >> lane & 1) | (high >> lane & 1) << 1;
      const std::uint32_t members = (c & 1 ? low : ~low) & (c & 2 ? high : ~high);
      work(w * device::kWarp + lane, c,
           c == kZero ? 0 : Counts{before}.of(c) + static_cast<std::uint32_t>(__popc(members & below)));
      before += counts_in(low, high);
    }
  }
  // The sum over the warps before this one, in all of its lanes. counts: this warp's, in lane 0.
  __device__ static std::uint64_t scan(std::uint64_t counts, Shared& own, Counts* total) {
    const std::uint64_t before = device::block_scan(device::lane() == 0 ? counts : std::uint64_t{0}, std::uint64_t{0},
                                                    device::Plus(), own.scratch, &total->all);
    return __shfl_sync(device::kAllLanes, before, 0);
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count));
    const Run run = run_of((piece.count + device::kWarp - 1) / device::kWarp);
    std::uint64_t counts = 0;
    for (std::uint32_t w = run.first; w < run.end; ++w) {
      const std::uint32_t i = w * device::kWarp + device::lane(),
                          c = i < piece.count ? class_of(fabsf(a[i]), limits) : 0;
      const std::uint32_t low = __ballot_sync(device::kAllLanes, c & 1), high = __ballot_sync(device::kAllLanes, c & 2);
      counts += counts_in(low, high);
      if (device::lane() == 0) {
        own.low[w] = low;
        own.high[w] = high;
      }
    }
    Counts total;
    const std::uint64_t before = scan(counts, own, &total);
    std::uint8_t *halves = own.codes + total.halves_at(),
                 *floats = out + 2 * plane + total.of(kByte) + 2 * total.of(kHalf);
    for_elements(run, before, own, [&](std::uint32_t i, std::uint32_t c, std::uint32_t k) {
      if (c == kZero) return;
      const float x = a[i], magnitude = fabsf(x);
      float left = 0.0f;
      if (c == kByte) {
        const std::uint32_t code = byte_code(x, magnitude, limits);
        own.codes[k] = static_cast<std::uint8_t>(code);
        left = x - value_of(code, limits.byte_unit, 7);
      } else if (c == kHalf) {
        const std::uint32_t code = half_code(x, magnitude);
        reinterpret_cast<std::uint16_t*>(halves)[k] = static_cast<std::uint16_t>(code);
        left = x - value_of(code, kHalfUnit, 15);
      } else {
        device::store_bytes(floats + 4 * k, x);
      }
      if (piece.keep) a[i] = left;
    });
    __syncthreads();
    device::copy_bytes(out, reinterpret_cast<const std::uint8_t*>(own.low), plane);
    device::copy_bytes(out + plane, reinterpret_cast<const std::uint8_t*>(own.high), plane);
    device::copy_bytes(out + 2 * plane, own.codes, total.of(kByte));
    device::copy_bytes(out + 2 * plane + total.of(kByte), halves, 2 * total.of(kHalf));
    return 2 * plane + total.bytes();
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t bytes, float* acc,
                             Shared& own) const {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count));
    const std::uint32_t words = (piece.count + device::kWarp - 1) / device::kWarp;
    if (bytes < 2 * plane || !bit_plane::padded_with_zeros(in, piece.count) ||
        !bit_plane::padded_with_zeros(in + plane, piece.count))
      return false;
    if (threadIdx.x == 0) own.low[words - 1] = own.high[words - 1] = 0;  // the last word may have fewer bytes
    __syncthreads();
    device::copy_bytes(reinterpret_cast<std::uint8_t*>(own.low), in, plane);
    device::copy_bytes(reinterpret_cast<std::uint8_t*>(own.high), in + plane, plane);
    __syncthreads();
    const Run run = run_of(words);
    std::uint64_t counts = 0;
    for (std::uint32_t w = run.first; w < run.end; ++w) counts += counts_in(own.low[w], own.high[w]);
    Counts total;
    const std::uint64_t before = scan(counts, own, &total);
    if (bytes != 2 * plane + total.bytes()) return false;
    in += 2 * plane;
    std::uint8_t* halves = own.codes + total.halves_at();
    const std::uint8_t* floats = in + total.of(kByte) + 2 * total.of(kHalf);
    device::copy_bytes(own.codes, in, total.of(kByte));
    device::copy_bytes(halves, in + total.of(kByte), 2 * total.of(kHalf));
    __syncthreads();
    bool legal = true;
    for_elements(run, before, own, [&](std::uint32_t i, std::uint32_t c, std::uint32_t k) {
      if (i >= piece.count) return;
      float x = 0.0f;
      if (c == kByte) x = value_of(own.codes[k], limits.byte_unit, 7);
      if (c == kHalf) x = value_of(reinterpret_cast<const std::uint16_t*>(halves)[k], kHalfUnit, 15);
      if (c == kFloat) {
        x = device::load_bytes<float>(floats + 4 * k);
        legal = legal && (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u;
      }
      acc[i] += x;
    });
    return !device::block_any(!legal);
  }
};

}  // namespace crimp::inceptionn
