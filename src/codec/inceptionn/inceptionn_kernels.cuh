// INCEPTIONN in a block: warp w has the w-th run of words of 32 elements, one ballot a word and bit plane. Bytes and
// halves are gathered in shared memory; floats, rare within (-1, 1), move between the piece and the payload directly.
#pragma once
#include "codec/coding/bit_plane.hpp"
#include "codec/device/sums.cuh"
#include "codec/inceptionn/inceptionn.hpp"

namespace crimp::inceptionn {

struct Device : device::PieceDevice {
  static constexpr bool kFixedSize = false, kDecodesAll = true;
  static constexpr std::uint32_t kDecodeBlocks = 3;
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

  // Payloads that are decoded together, and the words of a warp.
  static constexpr std::uint32_t kTogether = 4, kRunWords = kWords / device::kWarps;
  static_assert(kRunWords * device::kWarps == kWords && kRunWords <= device::kWarp && kTogether == 4);
  // The classes of 32 elements, and where in the payload the first member of each is or would be.
  struct alignas(16) Word {
    std::uint32_t low, high, bytes_halves, floats;  // 16 bits each of the third
  };
  struct DecodeShared {
    const std::uint8_t* in[kTogether];
    std::uint32_t warps[kTogether + kTogether / 2][device::kWarps];  // numbers of bytes and halves; of floats of two
    Word words[kTogether][kWords];
    float sums[kPieceElements];  // between groups of payloads
  };
  static_assert(2 * kPieceElements / 8 + 4 * kPieceElements < 1u << 16);

  // What all threads need of a group, of which lane b has payload b. A barrier within.
  template <class Payloads, class One>
  __device__ static void locate(const Payloads& payloads, std::uint32_t r, const One& mine, std::uint32_t count,
                                DecodeShared& own) {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(count));
    const std::uint32_t lane = device::lane(), word = device::warp() * kRunWords + lane,
                        left = lane < kRunWords ? device::behind(std::size_t{word} * device::kWarp, count) : 0;
    std::uint32_t low[kTogether], high[kTogether], numbers[kTogether], floats[kTogether / 2] = {};
#pragma unroll
    for (std::uint32_t b = 0; b < kTogether; ++b) {
      const auto in = device::global(reinterpret_cast<const std::uint8_t*>(
          __shfl_sync(device::kAllLanes, reinterpret_cast<std::uintptr_t>(mine.in), static_cast<int>(b))));
      const std::uint32_t bytes = __shfl_sync(device::kAllLanes, mine.bytes, static_cast<int>(b));
      low[b] = high[b] = 0;
      if (left > 0 && bytes >= 2 * plane) {
        low[b] = device::load_word(in, 4 * std::size_t{word}, plane);
        high[b] = device::load_word(in + plane, 4 * std::size_t{word}, plane);
      }
      if (threadIdx.x == 0) own.in[b] = in;
    }
#pragma unroll
    for (std::uint32_t b = 0; b < kTogether; ++b) {
      if (left < 32 && (low[b] | high[b]) >> left != 0) payloads.malformed(r + b);
      numbers[b] = static_cast<std::uint32_t>(__popc(low[b] & ~high[b])) |
                   static_cast<std::uint32_t>(__popc(high[b] & ~low[b])) << 16;
      floats[b / 2] |= static_cast<std::uint32_t>(__popc(low[b] & high[b])) << (16 * (b % 2));
    }
    const auto begin = [&](std::uint32_t row, std::uint32_t& v) {
      const std::uint32_t inclusive = device::warp_scan(v, device::Plus());
      if (lane == device::kWarp - 1) own.warps[row][device::warp()] = inclusive;
      v = inclusive - v;
    };
#pragma unroll
    for (std::uint32_t b = 0; b < kTogether; ++b) begin(b, numbers[b]);
#pragma unroll
    for (std::uint32_t h = 0; h < kTogether / 2; ++h) begin(kTogether + h, floats[h]);
    __syncthreads();
    std::uint32_t all_floats[kTogether / 2];
    const auto end = [&](std::uint32_t row, std::uint32_t& v) {
      const std::uint32_t sum = lane < device::kWarps ? own.warps[row][lane] : 0;
      v += __reduce_add_sync(device::kAllLanes, lane < device::warp() ? sum : 0);
      return __reduce_add_sync(device::kAllLanes, sum);
    };
#pragma unroll
    for (std::uint32_t h = 0; h < kTogether / 2; ++h) all_floats[h] = end(kTogether + h, floats[h]);
#pragma unroll
    for (std::uint32_t b = 0; b < kTogether; ++b) {
      const std::uint32_t all = end(b, numbers[b]), halves_at = 2 * plane + (all & 0xffff),
                          floats_at = halves_at + 2 * (all >> 16),
                          bytes = __shfl_sync(device::kAllLanes, mine.bytes, static_cast<int>(b));
      const bool good = bytes == floats_at + 4 * (all_floats[b / 2] >> (16 * (b % 2)) & 0xffff) && bytes >= 2 * plane;
      if (!good && threadIdx.x == 0 && r + b < payloads.count) payloads.malformed(r + b);
      if (lane < kRunWords)
        own.words[b][word] = {good ? low[b] : 0, good ? high[b] : 0,
                              (2 * plane + (numbers[b] & 0xffff)) | (halves_at + 2 * (numbers[b] >> 16)) << 16,
                              floats_at + 4 * (floats[b / 2] >> (16 * (b % 2)) & 0xffff)};
    }
  }
  // What a payload has for this lane's element of a word: its bytes, which may be on their way. One byte of 0 where it
  // has none.
  struct Code {
    std::uint32_t size, bytes[4];
  };
  __device__ static Code fetch(const std::uint8_t* in, const Word& word, std::uint32_t bit) {
    const bool low = (word.low & bit) != 0, high = (word.high & bit) != 0;
    const std::uint32_t members = (low ? word.low : ~word.low) & (high ? word.high : ~word.high) & (bit - 1),
                        first = low && high ? word.floats : __byte_perm(word.bytes_halves, 0, high ? 0x4432 : 0x4410);
    Code code{high ? low ? 4u : 2u : 1u, {}};
    in += first + code.size * static_cast<std::uint32_t>(__popc(members));
    if (low || high) code.bytes[0] = in[0];
    if (high) code.bytes[1] = in[1];
    if (low && high) code.bytes[2] = in[2];
    if (low && high) code.bytes[3] = in[3];
    return code;
  }
  // As value_of, but that the sign comes to its place first and the unit is smaller by as much: powers of two, exact.
  __device__ float value(const Code& of) const {
    const std::uint32_t code = of.bytes[0] | of.bytes[1] << 8 | of.bytes[2] << 16 | of.bytes[3] << 24,
                        raised = code << (of.size == 1 ? 24 : 16);
    const float magnitude = static_cast<float>(static_cast<std::int32_t>(raised & 0x7fffffff)) *
                            (of.size == 1 ? limits.byte_unit * 0x1p-24f : kHalfUnit * 0x1p-16f);
    return __uint_as_float(of.size == 4 ? code : __float_as_uint(magnitude) | (raised & 0x80000000));
  }
  template <class Payloads, class To>
  __device__ void decode_all(const device::Piece& piece, const Payloads& payloads, const To& out, bool accumulate, int,
                             DecodeShared& own) const {
    const std::uint32_t lane = device::lane(), bit = 1u << lane;
#pragma unroll 1
    for (std::uint32_t r = 0; r == 0 || r < payloads.count; r += kTogether) {
      if (r > 0) __syncthreads();
      const auto mine = lane < kTogether && r + lane < payloads.count ? payloads[r + lane] : device::Body{};
      locate(payloads, r, mine, piece.count, own);
      __syncthreads();
      std::uint32_t illegal = 0;  // a bit for each payload
#pragma unroll 1
      for (std::uint32_t w = device::warp() * kRunWords; w < (device::warp() + 1) * kRunWords; ++w) {
        const std::uint32_t i = w * device::kWarp + lane;
        if (i >= piece.count) break;
        float sum = 0.0f;
        if (r > 0) sum = own.sums[i];
        else if constexpr (std::is_pointer_v<To>)
          if (accumulate) sum = out[i];
        const std::uint32_t here = min(payloads.count - r, kTogether);
#pragma unroll 1
        for (std::uint32_t b = 0; b < here; b += 2) {  // of a payload that is not there the words are 0
          const Code codes[2] = {fetch(device::global(own.in[b]), own.words[b][w], bit),
                                 fetch(device::global(own.in[b + 1]), own.words[b + 1][w], bit)};
#pragma unroll
          for (std::uint32_t k = 0; k < 2; ++k) {
            if (b + k >= here) break;
            const float x = value(codes[k]);
            sum += x;
            if ((__float_as_uint(x) & 0x7fffffffu) >= 0x7f800000u) illegal |= 1u << (b + k);
          }
        }
        if (r + kTogether < payloads.count) own.sums[i] = sum;
        else device::put<1>(out, i, {sum});
      }
      if (illegal != 0) payloads.malformed(r + static_cast<std::uint32_t>(__ffs(static_cast<int>(illegal))) - 1);
    }
  }
};

}  // namespace crimp::inceptionn
