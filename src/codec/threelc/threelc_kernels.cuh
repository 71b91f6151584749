// 3LC in a block: a warp makes the 32 bytes of a tile, lane i byte i, from five elements a stripe apart.
#pragma once
#include "codec/coding/prefix_code_kernels.cuh"
#include "codec/coding/zero_run_kernels.cuh"
#include "codec/threelc/stripe_sums.cuh"
#include "codec/threelc/word_sums.cuh"

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

struct Prefixes {
  PrefixDecodeTable table;
  device::BlockScratch scratch;
  alignas(16) std::uint8_t bytes[kRoom];
};
template <Stage stage>
struct Decoding {
  Expansion expansion;
  WordSums::Waiting sums;
  Digits digits;
  SumsOfFour all;
  float scales[2][kTogether];  // of two groups in turn
};
template <>
struct Decoding<Stage::entropy> : Decoding<Stage::zero_run> {
  Prefixes prefixes;
  alignas(16) std::uint8_t coded[kTogether][kRoom];
  const std::uint8_t* in[kTogether];
  std::uint32_t in_bytes[kTogether], code_bytes[kTogether];

  __device__ std::uint32_t word(std::uint32_t b) const {
    return first_codes(reinterpret_cast<const std::uint32_t*>(coded[b])[threadIdx.x], code_bytes[b], 4 * threadIdx.x);
  }
};

template <Stage stage>
using Decodes = std::conditional_t<stage == Stage::base, StripeSums, device::PieceDevice>;

template <Stage stage>
struct Device : Decodes<stage> {
  static constexpr bool kFixedSize = stage == Stage::base, kDecodesAll = stage != Stage::base;
  static constexpr std::uint32_t kDecodeBlocks = 3;
  struct Shared : Coded<stage> {
    device::BlockScratch scratch;
    alignas(16) std::uint8_t bytes[kRoom];
  };
  using DecodeShared = std::conditional_t<stage == Stage::base, StripeSums::DecodeShared, Decoding<stage>>;
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

  // Where a piece's codes are, and how many; none where there are too many.
  struct Codes {
    const std::uint8_t* at;
    std::uint32_t bytes;
  };
  template <class One>
  __device__ static Codes codes_of(const One& one, std::uint32_t n) {
    const std::uint32_t head = sizeof(float);
    return {one.in + head, one.bytes >= head && one.bytes - head <= n ? one.bytes - head : 0};
  }
  // How many codes, brought to shared memory, the prefix codes stand for; none where they are malformed. Barriers.
  __device__ static std::uint32_t decoded(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t n,
                                          std::uint8_t* to, Prefixes& own) {
    const std::uint32_t head = sizeof(float) + 1;
    if (bytes < head || bytes - head > n) return 0;
    in += sizeof(float);
    bytes -= static_cast<std::uint32_t>(sizeof(float));
    if (in[0] == kPlain) {
      device::copy_bytes(to, in + 1, bytes - 1);
      return bytes - 1;
    }
    device::copy_bytes(own.bytes, in, bytes);
    const std::uint32_t codes = prefix_decode_block(own.bytes, bytes, n, to, own.table, own.scratch);
    return codes <= n ? codes : 0;
  }

  // A thread's codes of a group and where they end, and how many codes a payload has, two in 16 bits each.
  struct Group {
    std::uint32_t words[kTogether] = {}, ends[kTogether] = {}, codes[kTogether / 2] = {}, before[kTogether / 2] = {};
    std::uint32_t slots = 0;  // codes that the warps which have any look at

    __device__ bool none() const { return 4 * device::kWarp * device::warp() >= slots; }
    __device__ void count(std::uint32_t b, std::uint32_t bytes) {
      codes[b / 2] |= bytes << (16 * (b % 2));
      slots = max(slots, bytes);
    }
    __device__ void take(std::uint32_t b, std::uint32_t word) {
      words[b] = word;
      ends[b] = run_ends(word);
    }
  };
  // The first part of expanding a group, of which lane b has payload b.
  template <class One>
  __device__ static void expand_group(const One& mine, std::uint32_t n, Group& group, DecodeShared& own) {
    const std::uint32_t first = 4 * threadIdx.x;
    if constexpr (stage == Stage::entropy) {
      if (threadIdx.x < kTogether) {  // where it takes no registers
        own.in[threadIdx.x] = mine.in;
        own.in_bytes[threadIdx.x] = mine.bytes;
      }
      __syncthreads();
#pragma unroll 1
      for (std::uint32_t b = 0; b < kTogether; ++b) {
        const std::uint32_t bytes = decoded(device::global(own.in[b]), own.in_bytes[b], n, own.coded[b], own.prefixes);
        if (threadIdx.x == 0) own.code_bytes[b] = bytes;
        __syncthreads();
      }
    }
    const auto none = [&] {
      group.slots = (group.slots + 4 * device::kWarp - 1) / (4 * device::kWarp) * (4 * device::kWarp);
      if (group.none() && device::lane() == 0)
#pragma unroll
        for (std::uint32_t pair = 0; pair < kTogether / 2; ++pair) own.expansion.warps[pair][device::warp()] = 0;
      return group.none();
    };
    if constexpr (stage == Stage::entropy) {
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) group.count(b, own.code_bytes[b]);
      if (none()) return;
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) group.take(b, own.word(b));
    } else {
      const Codes own_codes = codes_of(mine, n);
      Codes codes[kTogether];
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) {
        const auto from = static_cast<int>(b);
        const auto at = __shfl_sync(device::kAllLanes, reinterpret_cast<std::uintptr_t>(own_codes.at), from);
        codes[b] = {device::global(reinterpret_cast<const std::uint8_t*>(at)),
                    __shfl_sync(device::kAllLanes, own_codes.bytes, from)};
        group.count(b, codes[b].bytes);
      }
      if (none()) return;
      const auto fetch = [&](std::uint32_t b) { return RunCodes(codes[b].at, codes[b].bytes, first); };
      const RunCodes fetched[kTogether] = {fetch(0), fetch(1), fetch(2), fetch(3)};
      static_assert(kTogether == 4);
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) group.take(b, fetched[b].word());
    }
#pragma unroll
    for (std::uint32_t pair = 0; pair < kTogether / 2; ++pair)
      group.before[pair] = expand_begin(pair, group.ends[2 * pair], group.ends[2 * pair + 1], own.expansion);
  }

  template <class Payloads, class To>
  __device__ void decode_all(const device::Piece& piece, const Payloads& payloads, const To& out, bool accumulate, int,
                             DecodeShared& own) const {
    const auto n = static_cast<std::uint32_t>(base_bytes(piece.count));
    const std::uint32_t lane = device::lane();
    if constexpr (std::is_pointer_v<To>)
      if (accumulate) WordSums(piece.count).fetch(out, own.sums);
    if (accumulate || payloads.count > kTogether) own.digits.fill();
    if (!accumulate) own.all.fill_digits();
#pragma unroll 1
    for (std::uint32_t r = 0; r == 0 || r < payloads.count; r += kTogether) {
      float* const scales = own.scales[r / kTogether % 2];
      const auto mine = lane < kTogether && r + lane < payloads.count ? payloads[r + lane] : device::Body{};
      if (device::warp() == device::kWarps - 1 && lane < kTogether) {  // a warp that often has no codes to wait for
        const float scale = mine.in == nullptr           ? 0.0f
                            : mine.bytes < sizeof(float) ? -1.0f
                                                         : device::load_bytes<float>(device::global(mine.in));
        scales[lane] = scale;
        if (!legal_scale(scale)) payloads.malformed(r + lane);
      }
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) own.expansion.base[b][threadIdx.x] = kZeroWord;
      Group group;
      expand_group(mine, n, group, own);
      __syncthreads();
      const std::uint32_t goal = expand_goal(n, group.slots);
      std::uint32_t totals[kTogether / 2];
#pragma unroll
      for (std::uint32_t pair = 0; pair < kTogether / 2; ++pair) {
        if constexpr (stage == Stage::entropy)  // not kept in registers
#pragma unroll
          for (std::uint32_t b = 2 * pair; b < 2 * pair + 2; ++b) group.take(b, own.word(b));
        totals[pair] = expand_end(pair, group.before[pair], {group.words[2 * pair], group.words[2 * pair + 1]},
                                  {group.ends[2 * pair], group.ends[2 * pair + 1]}, group.codes[pair], goal,
                                  group.none(), own.expansion);
      }
      if (threadIdx.x < kTogether && r + threadIdx.x < payloads.count)
        if (const std::uint32_t pair = threadIdx.x < 2 ? totals[0] : totals[1];
            (pair >> (16 * (threadIdx.x % 2)) & 0xffff) != goal)
          payloads.malformed(r + threadIdx.x);
      const bool begins = r == 0 && !accumulate;
      if (begins) own.all.fill_sums(scales);
      __syncthreads();
      WordSums sums(piece.count);
      if (sums.empty()) continue;
      const auto word = [&](std::uint32_t b) { return own.expansion.base[b][threadIdx.x]; };
      if (begins) {
        sums.begin_with({word(0), word(1), word(2), word(3)}, own.all);
      } else {
        sums.go_on(own.sums);
#pragma unroll
        for (std::uint32_t b = 0; b < kTogether; ++b) {
          if (r + b >= payloads.count) break;
          if (const float scale = scales[b]; Digits::halves(scale)) sums.template add<true>(word(b), scale, own.digits);
          else sums.template add<false>(word(b), scale, own.digits);
        }
      }
      if (r + kTogether < payloads.count) sums.wait(own.sums);
      else sums.store(out, own.sums);
    }
  }
};

}  // namespace crimp::threelc
