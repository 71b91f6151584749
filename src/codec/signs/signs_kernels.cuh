// The 1-bit methods in a block: some warps add up the classes, an element of shared memory a thread and step, the
// others make the words of the plane by ballot.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/signs/signs.hpp"

namespace crimp::signs {

template <Scales scales>
struct Device : std::conditional_t<scales == Scales::none, device::PieceDevice, device::QuadSums> {
  static constexpr std::uint32_t kEncodeBlocks = scales == Scales::none ? 3 : 4,
                                 kDecodeBlocks = scales == Scales::none ? 4 : 3;
  static constexpr bool kVotes = scales == Scales::none, kFixedSize = !kVotes, kDecodesAll = kVotes, kWhole = !kVotes;
  static constexpr std::uint32_t kWholeSlots = 3;
  static constexpr int kWholePayloads = 4;
  using DecodeShared = device::QuadSums::DecodeShared;
  // The sums have as many threads as there are lanes of both classes; each is a chain that the format fixes.
  static constexpr std::uint32_t kAdding = scales == Scales::none ? 0 : 2 * kSumLanes / device::kWarp,
                                 kPacking = device::kWarps - kAdding;
  struct Shared {
    float lanes[2 * kSumLanes], sums[2];  // of the negatives, of the rest
    std::uint32_t negatives[kPacking];    // by warps
    alignas(16) std::uint32_t plane[kPieceElements / device::kWarp];
    alignas(16) std::uint32_t zeros[kVotes ? kPieceElements / device::kWarp : 4];
  };

  __device__ static constexpr std::uint32_t scale_bytes() { return static_cast<std::uint32_t>(scales) * sizeof(float); }
  __device__ std::uint32_t bytes(std::uint32_t count) const {
    return scale_bytes() + static_cast<std::uint32_t>(bit_plane::bytes_of(count));
  }

  __device__ static void add_class(const float* a, std::uint32_t count, float* lanes) {
    const bool negatives = threadIdx.x < kSumLanes;
    float sum = 0.0f;
#pragma unroll 4
    for (std::uint32_t i = threadIdx.x % kSumLanes; i < count; i += kSumLanes) {
      const float x = a[i];
      sum += (x < 0.0f) == negatives ? x : 0.0f;
    }
    lanes[threadIdx.x] = sum;
  }
  // Whether this warp has met a zero, where zeros matter.
  __device__ static bool pack_plane(const float* a, std::uint32_t count, Shared& own) {
    std::uint32_t negatives = 0, any = 0;
#pragma unroll 4
    for (std::uint32_t word = device::warp() - kAdding; word * device::kWarp < count; word += kPacking) {
      const std::uint32_t i = word * device::kWarp + device::lane(),
                          bits = __ballot_sync(device::kAllLanes, i < count && a[i] < 0.0f);
      if (device::lane() == 0) own.plane[word] = bits;
      if constexpr (kVotes) {
        const std::uint32_t zeros = __ballot_sync(device::kAllLanes, i < count && a[i] == 0.0f);
        if (device::lane() == 0) own.zeros[word] = zeros;
        any |= zeros;
      }
      negatives += static_cast<std::uint32_t>(__popc(bits));
    }
    if (device::lane() == 0) own.negatives[device::warp() - kAdding] = negatives;
    return any != 0;
  }
  // In every thread. Barriers around it.
  __device__ static Levels levels_of(std::uint32_t count, Shared& own) {
    const std::uint32_t lane = device::lane();
    if (device::warp() < 2) {
      const float* lanes = own.lanes + device::warp() * kSumLanes;
      const float sum = device::warp_tree_sum(lanes[lane], lanes[lane + device::kWarp]);
      if (lane == 0) own.sums[device::warp()] = sum;
    }
    __syncthreads();
    if constexpr (scales == Scales::mean) return mean_magnitude(own.sums[0], own.sums[1], count);
    return class_means(own.sums[0], own.sums[1],
                       __reduce_add_sync(device::kAllLanes, lane < kPacking ? own.negatives[lane] : 0u), count);
  }

  __device__ static std::uint32_t encode_votes(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count));
    const bool zeros = device::block_any(pack_plane(a, piece.count, own));
    device::copy_bytes(out, reinterpret_cast<const std::uint8_t*>(own.plane), plane);
    if (zeros) device::copy_bytes(out + plane, reinterpret_cast<const std::uint8_t*>(own.zeros), plane);
    if (piece.keep)
      for (std::uint32_t i = threadIdx.x; i < piece.count; i += device::kThreads)
        a[i] -= vote(a[i] < 0.0f, a[i] == 0.0f);
    return zeros ? 2 * plane : plane;
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    if constexpr (kVotes) return encode_votes(piece, a, out, own);
    if (device::warp() < kAdding) add_class(a, piece.count, own.lanes);
    else pack_plane(a, piece.count, own);
    __syncthreads();
    const Levels levels = levels_of(piece.count, own);
    if (threadIdx.x == 0) {
      device::store_bytes(out, levels.m0);
      if constexpr (scales == Scales::class_means) device::store_bytes(out + sizeof(float), levels.m1);
    }
    device::copy_bytes(out + scale_bytes(), reinterpret_cast<const std::uint8_t*>(own.plane),
                       static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count)));
    if (piece.keep)
      device::for_elements(piece.count, true, [&](auto n, std::uint32_t i) {
        auto x = device::load<n>(a + i);
#pragma unroll
        for (int k = 0; k < n; ++k) x.v[k] -= decode(x.v[k] < 0.0f, levels);
        device::store<n>(a + i, x);
      });
    return bytes(piece.count);
  }

  // Payloads of votes. A warp has kRun neighbours: its first kRunWords lanes a word of each plane, and all lanes a quad
  // in each of kSteps steps.
  static constexpr std::uint32_t kRun = kPieceElements / device::kWarps, kRunWords = kRun / device::kWarp,
                                 kSteps = kRun / (4 * device::kWarp), kTogether = 4;
  static_assert(kSteps * 4 * device::kWarp == kRun && kRunWords <= device::kWarp);
  // As many payloads as numbers of kCountBits bits and a sign can count.
  static constexpr std::uint32_t kCountBits = 8, kMostCounted = (1u << (kCountBits - 1)) - 1;

  struct Planes {
    const std::uint8_t *signs, *zeros;  // null where there are none
    bool legal;
  };
  __device__ static Planes planes_of(const std::uint8_t* in, std::uint32_t bytes, std::uint32_t plane) {
    const bool zeros = bytes == 2 * plane, legal = zeros || bytes == plane;
    return {legal ? in : nullptr, zeros ? in + plane : nullptr, legal};
  }
  // Neither votes that are two things nor bits behind the end, which is behind `left` elements.
  __device__ static bool legal_bits(std::uint32_t signs, std::uint32_t zeros, std::uint32_t left) {
    return (signs & zeros) == 0 && (left >= 32 || (signs | zeros) >> left == 0);
  }

  template <class To>
  __device__ static void store_quad(const To& out, std::size_t i, std::uint32_t count, const float (&x)[4]) {
    const std::uint32_t left = device::behind(i, count);
    if (left >= 4 && device::in_quads(out)) {
      device::put<4>(out, i, {x[0], x[1], x[2], x[3]});
    } else {
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k)
        if (k < left) device::put<1>(out, i + k, {x[k]});
    }
  }

  // The majority of up to kMostCounted payloads: their votes are counted for 32 elements at once, a word for each bit
  // of the sums.
  template <class Payloads, class To>
  __device__ static void count_votes(const device::Piece& piece, const Payloads& payloads, const To& out, int voters) {
    const std::uint32_t lane = device::lane(), count = piece.count,
                        plane = static_cast<std::uint32_t>(bit_plane::bytes_of(count)),
                        word = device::warp() * kRunWords + lane;
    // Computed each time rather than kept in registers.
    const auto left = [&] { return lane < kRunWords ? device::behind(std::size_t{word} * device::kWarp, count) : 0; };
    std::uint32_t sums[kCountBits] = {};
#pragma unroll 1
    for (std::uint32_t r = 0; r < payloads.count; r += kTogether) {
      const auto mine = lane < kTogether && r + lane < payloads.count ? payloads[r + lane] : device::Body{};
      std::uint32_t signs[kTogether], zeros[kTogether];
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) {
        const auto in = __shfl_sync(device::kAllLanes, reinterpret_cast<std::uintptr_t>(mine.in), static_cast<int>(b));
        const Planes planes = planes_of(device::global(reinterpret_cast<const std::uint8_t*>(in)),
                                        __shfl_sync(device::kAllLanes, mine.bytes, static_cast<int>(b)), plane);
        signs[b] = zeros[b] = 0;
        if (left() > 0 && planes.signs)
          signs[b] = device::load_word(device::global(planes.signs), 4 * std::size_t{word}, plane);
        if (left() > 0 && planes.zeros)
          zeros[b] = device::load_word(device::global(planes.zeros), 4 * std::size_t{word}, plane);
        if (!planes.legal && threadIdx.x == 0 && r + b < payloads.count) payloads.malformed(r + b);
      }
#pragma unroll
      for (std::uint32_t b = 0; b < kTogether; ++b) {
        if (r + b >= payloads.count) break;
        if (!legal_bits(signs[b], zeros[b], left())) payloads.malformed(r + b);
        std::uint32_t carry = sums[0] & ~zeros[b];  // a vote is -1 or 1: the lowest bit, and the sign in all others
        sums[0] ^= ~zeros[b];
#pragma unroll
        for (std::uint32_t k = 1; k < kCountBits; ++k) {
          const std::uint32_t sum = sums[k];
          sums[k] = sum ^ signs[b] ^ carry;
          carry = (sum & signs[b]) | (sum & carry) | (signs[b] & carry);
        }
      }
    }
    std::uint32_t any = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < kCountBits; ++k) any |= sums[k];
    const float ranks = static_cast<float>(voters);
#pragma unroll 1
    for (std::uint32_t s = 0; s < kSteps; ++s) {
      const int from = static_cast<int>(4 * s + lane / 8);
      const std::uint32_t by = 4 * (lane % 8), some = __shfl_sync(device::kAllLanes, any, from) >> by,
                          less = __shfl_sync(device::kAllLanes, sums[kCountBits - 1], from) >> by;
      float x[4];
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k) x[k] = some >> k & 1 ? less >> k & 1 ? -ranks : ranks : 0.0f;
      store_quad(out, device::warp() * kRun + (s * device::kWarp + lane) * 4, count, x);
    }
  }
  // The sums of any number of payloads.
  template <class Payloads, class To>
  __device__ static void add_votes(const device::Piece& piece, const Payloads& payloads, const To& out, bool accumulate,
                                   int voters) {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count));
#pragma unroll 1
    for (std::uint32_t s = 0; s < kSteps; ++s) {
      const std::size_t i = device::warp() * kRun + (s * device::kWarp + device::lane()) * 4;
      const std::uint32_t left = device::behind(i, piece.count);
      if (left == 0) return;
      float x[4] = {};
      if constexpr (std::is_pointer_v<To>)
        if (accumulate) {
          if (left >= 4 && device::in_quads(out)) {
            const auto four = device::load<4>(out + i);
#pragma unroll
            for (std::uint32_t k = 0; k < 4; ++k) x[k] = four.v[k];
          } else {
#pragma unroll
            for (std::uint32_t k = 0; k < 4; ++k)
              if (k < left) x[k] = out[i + k];
          }
        }
#pragma unroll 1
      for (std::uint32_t r = 0; r < payloads.count; ++r) {
        const auto one = payloads[r];
        const Planes planes = planes_of(one.in, one.bytes, plane);
        const std::uint32_t signs = planes.signs ? device::global(planes.signs)[i / 8] >> i % 8 : 0u,
                            zeros = planes.zeros ? device::global(planes.zeros)[i / 8] >> i % 8 : 0u;
        if (!planes.legal || !legal_bits(signs, zeros, left)) payloads.malformed(r);
#pragma unroll
        for (std::uint32_t k = 0; k < 4; ++k) x[k] += vote(signs >> k & 1, zeros >> k & 1);
      }
      if (!accumulate) {
#pragma unroll
        for (std::uint32_t k = 0; k < 4; ++k) x[k] = majority(x[k], static_cast<float>(voters));
      }
      store_quad(out, i, piece.count, x);
    }
  }
  template <class Payloads, class To>
  __device__ void decode_all(const device::Piece& piece, const Payloads& payloads, const To& out, bool accumulate,
                             int voters, DecodeShared&) const {
    if (device::warp() * kRun >= piece.count) return;
    if (accumulate || payloads.count > kMostCounted) add_votes(piece, payloads, out, accumulate, voters);
    else count_votes(piece, payloads, out, voters);
  }

  struct Head {
    Levels levels;
    std::uint32_t last;  // byte of the plane, where it has bits behind the last element
  };
  using Slot = std::uint32_t;  // the byte that holds its four bits
  __device__ Head head(const device::Piece& piece, const std::uint8_t* in) const {
    Head h;
    h.levels.m0 = h.levels.m1 = __uint_as_float(device::load_word(in, 0, scale_bytes()));
    if constexpr (scales == Scales::class_means)
      h.levels.m1 = __uint_as_float(device::load_word(in, sizeof(float), scale_bytes()));
    h.last = piece.count % 8 ? in[scale_bytes() + piece.count / 8] : 0u;
    return h;
  }
  __device__ bool legal(const device::Piece& piece, const Head& h) const {
    const auto legal_level = [](float m) { return __float_as_uint(m) < 0x7f800000u; };
    return legal_level(h.levels.m0) && legal_level(h.levels.m1) && h.last >> piece.count % 8 == 0;
  }
  __device__ Slot fetch(const device::Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::size_t i = device::QuadSums::first_of(j);
    return device::behind(i, piece.count) ? in[scale_bytes() + threadIdx.x / 2 + j * (device::kThreads / 2)] : 0u;
  }
  __device__ bool add(const device::Piece&, const Head& h, Slot byte, std::uint32_t, float (&sums)[4],
                      const DecodeShared&) const {
    const std::uint32_t bits = byte >> 4 * (threadIdx.x % 2);
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) sums[k] += decode(bits >> k & 1, h.levels);
    return true;
  }

  struct Whole {
    using Head = Device::Head;
    using Slot = std::uint32_t;
    __device__ Head head(const std::uint8_t* in) const {
      const float m0 = __uint_as_float(device::word_at(in));
      return {{m0, scales == Scales::class_means ? __uint_as_float(device::word_at(in + sizeof(float))) : m0}, 0};
    }
    __device__ Slot fetch(const std::uint8_t* in, std::uint32_t j) const {
      return (in + scale_bytes() + threadIdx.x / 2)[j * (device::kThreads / 2)];
    }
    __device__ static bool open(const Device& codec, const Head& h) {
      return codec.legal({kPieceElements, false, {}, {}, 0}, h);
    }
    __device__ bool add(const Head& h, Slot byte, std::uint32_t, float (&sums)[4],
                        const device::QuadSums::DecodeShared&) const {
      const std::uint32_t bits = byte >> 4 * (threadIdx.x % 2);
#pragma unroll
      for (std::uint32_t k = 0; k < 4; ++k) sums[k] += decode(bits >> k & 1, h.levels);
      return true;
    }
  };
  template <class Work>
  __device__ static bool with_whole(Work&& work) {
    work(Whole());
    return true;
  }
};

}  // namespace crimp::signs
