// TernGrad in a block: digits as the uniform quantiser draws them, then the bytes of 3LC.
#pragma once
#include "codec/threelc/stripe_sums.cuh"
#include "codec/uniform/uniform_kernels.cuh"

namespace crimp::uniform {

struct TernGradDevice : threelc::StripeSums {
  static constexpr std::uint32_t kOtherBlocks = 3;
  static constexpr bool kLoadsWhole = true;
  static constexpr std::uint32_t kHead = 16;  // the scale stands right in front of the base bytes, which are aligned
  static constexpr std::uint32_t kStripeWords = threelc::kStripe / 4,
                                 kRow = kStripeWords + 1;  // of a warp's four tiles two have the same banks
  struct Sums {
    std::uint32_t tops[device::kWarps];
    float sums[2][kSumLanes];
  };
  struct Shared {
    union {
      alignas(8) Sums found;
      std::uint32_t digits[kPieceElements / threelc::kStripe][kRow];  // of stripes, as digit_of() has them
    };
    float scale, inverse;
    bool near;
    alignas(16) std::uint8_t bytes[kHead + kPieceElements / threelc::kTile * threelc::kStripe];
  };
  float clip;

  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return static_cast<std::uint32_t>(sizeof(float) + threelc::base_bytes(count));
  }

  // A sum in the order of the format, by a warp, of what `part` makes of the elements. A thread has two lanes.
  template <class Part>
  __device__ static void sum_lanes(const float* a, std::uint32_t count, float* sums, Part&& part) {
    static_assert(kSumLanes == 2 * device::kWarp);
    const std::uint32_t lane = 2 * device::lane(), rest = count % kSumLanes;
    device::Floats<2> sum{};
    a += lane;
#pragma unroll 8
    for (std::uint32_t t = count / kSumLanes; t > 0; --t, a += kSumLanes) {
      const device::Floats<2> x = device::load<2>(a);
      sum.v[0] += part(x.v[0]);
      sum.v[1] += part(x.v[1]);
    }
    if (lane < rest) sum.v[0] += part(a[0]);
    if (lane + 1 < rest) sum.v[1] += part(a[1]);
    device::store<2>(sums + lane, sum);
  }
  // Leaves scale and 1 / scale, 0 where scale is. One warp adds up the elements and one their squares; the others look
  // for the largest.
  __device__ void measure(const float* a, std::uint32_t count, Shared& own) const {
    constexpr std::uint32_t summing = 2;
    if (device::warp() == 0) {
      sum_lanes(a, count, own.found.sums[0], [](float x) { return x; });
    } else if (device::warp() == 1) {
      sum_lanes(a, count, own.found.sums[1], [](float x) { return x * x; });
    } else {
      const std::uint32_t top =
          device::warp_peak(a, count, summing * device::kWarp, device::kThreads - summing * device::kWarp);
      if (device::lane() == 0) own.found.tops[device::warp()] = top;
    }
    __syncthreads();
    if (device::warp() == 0) {
      const std::uint32_t lane = device::lane();
      const float sum = device::warp_tree_sum(own.found.sums[0][lane], own.found.sums[0][lane + device::kWarp]);
      const float squares = device::warp_tree_sum(own.found.sums[1][lane], own.found.sums[1][lane + device::kWarp]);
      const bool has = lane >= summing && lane < device::kWarps;
      const float top = __uint_as_float(__reduce_max_sync(device::kAllLanes, has ? own.found.tops[lane] : 0u));
      if (lane == 0) {
        const float scale = clipped_peak({sum, squares, top}, count, clip);
        own.scale = scale;
        own.inverse = symmetric(scale, 1).inverse * 0x1p-16f;
        own.near = top * own.inverse < kFar;
        device::store_bytes(own.bytes + kHead - sizeof scale, scale);
      }
    }
    __syncthreads();
  }

  // Where the digit of an element is. A word has four of its stripe: of two neighbours, and of those half a stripe
  // behind them.
  __device__ static std::uint8_t& digit_of(Shared& own, std::uint32_t i) {
    const std::uint32_t in_stripe = i % threelc::kStripe;
    auto* const word = own.digits[i / threelc::kStripe] + in_stripe % kHalf / 2;
    return reinterpret_cast<std::uint8_t*>(word)[in_stripe / kHalf + 2 * (in_stripe % 2)];
  }

  // The digits of whole tiles, two lanes a thread; as quantize() and dequantize() of uniform.hpp have them: 65536ths of
  // the scale are the last places of a float about 192, and the digit begins with the upper half of its bits. Before
  // they are held to the digits no element may be farther out than -kFar times the scale: then that is no float about
  // 192, nor anything that would be less. With a clip of half a deviation there is none.
  static constexpr float kFar = 190.0f;
  template <bool keep>
  __device__ void quantize_whole(const device::Piece& piece, float* a, Shared& own) const {
    const float scale = own.scale, inverse = own.inverse;
    constexpr std::uint32_t offset = (0x10000 + 1 - 0x4340) * 0x10001u;  // of 192
#pragma unroll 1
    for (std::uint32_t tile = threadIdx.x / dither::kPairs; tile < piece.count / kTile; tile += dither::kPairTiles) {
      const dither::Pairs pairs(tile);
      const std::uint32_t first = pairs.flip ? 0x100 : 1, second = pairs.flip ? 1 : 0x100;
      std::uint32_t* const digits = own.digits[tile * (kTile / threelc::kStripe)] + pairs.pair;
      std::uint32_t four = 0;
      pairs(piece.counter, tile, [&](std::uint32_t step, std::uint32_t in_tile, const dither::PairBits& random) {
        float* const at = a + tile * kTile + in_tile;
        device::Floats<2> x = device::load<2>(at);
        const auto level = [&](float y) { return __float_as_uint(y * inverse + 192.0f); };
        const std::uint32_t two =
            clamped_pair(random.add_first(level(x.v[0])), random.add_second(level(x.v[1])), offset, 0x20002);
        four = step % 2 == 0 ? two * first : four + two * second;
        if (step % 2 == 1) digits[step / 2 * kRow] = four;
        if constexpr (keep) {
          const auto left = [&](float y, std::uint32_t pick) {
            return y - (__uint_as_float(__byte_perm(two, 0x4b000000, pick)) - 8388609.0f) * scale;
          };
          x.v[0] = left(x.v[0], 0x7610);
          x.v[1] = left(x.v[1], 0x7632);
          device::store<2>(at, x);
        }
      });
    }
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    measure(a, piece.count, own);
    if (own.near) {
      if (piece.keep) quantize_whole<true>(piece, a, own);
      else quantize_whole<false>(piece, a, own);
    }
    if (const std::uint32_t done = own.near ? piece.count / kTile * kTile : 0; done < piece.count) {
      const Grid grid = symmetric(own.scale, 1);
#pragma unroll 1
      for (std::uint32_t i = done + threadIdx.x; i < piece.count; i += device::kThreads) {
        const std::int32_t q = quantize(a[i], grid, dither::bits16(piece.counter, dither::kRounding, i));
        digit_of(own, i) = static_cast<std::uint8_t>(q + 1);
        if (piece.keep) a[i] -= dequantize(q, grid);
      }
    }
    __syncthreads();
    // Four bytes at once: none of them carries into the next.
    const std::uint32_t whole = piece.count / threelc::kTile;
#pragma unroll 1
    for (std::uint32_t w = threadIdx.x; w < whole * kStripeWords; w += device::kThreads) {
      const std::uint32_t tile = w / kStripeWords, in_stripe = w % kStripeWords;
      const std::uint32_t* const digits = own.digits[5 * tile] + in_stripe;
      std::uint32_t four = digits[0];
#pragma unroll
      for (std::uint32_t j = 1; j < 5; ++j) four = 3 * four + digits[j * kRow];
      auto* const to = reinterpret_cast<std::uint16_t*>(own.bytes + kHead + tile * threelc::kStripe) + in_stripe;
      to[0] = static_cast<std::uint16_t>(__byte_perm(four, 0, 0x20));
      to[kHalf / 2] = static_cast<std::uint16_t>(__byte_perm(four, 0, 0x31));
    }
    const auto n = static_cast<std::uint32_t>(threelc::base_bytes(piece.count));
    if (const std::uint32_t b = whole * threelc::kStripe + threadIdx.x; b < n) {
      const std::uint32_t begin = whole * threelc::kTile, width = threelc::stripe(begin, piece.count);
      std::uint32_t byte = 0;
#pragma unroll
      for (std::uint32_t j = 0; j < 5; ++j) {
        const std::uint32_t i = begin + threadIdx.x + j * width;
        byte = 3 * byte + (i < piece.count ? digit_of(own, i) : 1);
      }
      own.bytes[kHead + b] = static_cast<std::uint8_t>(byte);
    }
    __syncthreads();
    constexpr std::uint32_t most = sizeof own.bytes / 16;  // threads that have something to copy
    static_assert(most > 64);
    if (threadIdx.x < most) device::copy_bytes(out, own.bytes + kHead - sizeof(float), bytes(piece.count));
    return bytes(piece.count);
  }

  // Finite and not negative, -0 neither.
  __device__ bool legal(const device::Piece&, float scale) const { return __float_as_uint(scale) < 0x7f800000u; }
};

}  // namespace crimp::uniform
