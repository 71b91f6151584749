// The 1-bit methods in a block: some warps add up the classes, an element of shared memory a thread and step, the
// others make the words of the plane by ballot.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/signs/signs.hpp"

namespace crimp::signs {

template <Scales scales>
struct Device : std::conditional_t<scales == Scales::none, device::PieceDevice, device::QuadSums> {
  static constexpr std::uint32_t kEncodeBlocks = scales == Scales::none ? 3 : 4,
                                 kDecodeBlocks = scales == Scales::none ? 4 : 2;
  static constexpr bool kVotes = scales == Scales::none, kFixedSize = !kVotes, kWhole = !kVotes;
  static constexpr int kWholePayloads = 4;
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

  __device__ static bool decode_add_votes(const device::Piece& piece, const std::uint8_t* in, std::uint32_t bytes,
                                          float* acc, Shared& own) {
    const auto plane = static_cast<std::uint32_t>(bit_plane::bytes_of(piece.count)),
               words = (piece.count + device::kWarp - 1) / device::kWarp;
    const bool zeros = bytes == 2 * plane;
    if ((bytes != plane && !zeros) || !bit_plane::padded_with_zeros(in, piece.count) ||
        (zeros && !bit_plane::padded_with_zeros(in + plane, piece.count)))
      return false;
    for (std::uint32_t w = threadIdx.x; w < words; w += device::kThreads)
      own.plane[w] = own.zeros[w] = 0;  // also behind the last byte
    __syncthreads();
    device::copy_bytes(reinterpret_cast<std::uint8_t*>(own.plane), in, plane);
    if (zeros) device::copy_bytes(reinterpret_cast<std::uint8_t*>(own.zeros), in + plane, plane);
    __syncthreads();
    bool both = false;
    for (std::uint32_t w = threadIdx.x; w < words; w += device::kThreads) both = both || own.plane[w] & own.zeros[w];
    if (device::block_any(both)) return false;
    for (std::uint32_t i = threadIdx.x; i < piece.count; i += device::kThreads)
      acc[i] +=
          vote(own.plane[i / device::kWarp] >> device::lane() & 1, own.zeros[i / device::kWarp] >> device::lane() & 1);
    return true;
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t size, float* acc,
                             Shared& own) const {
    return decode_add_votes(piece, in, size, acc, own);
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
                      const device::QuadSums::DecodeShared&) const {
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

  __device__ void finish(const device::Piece& piece, float* acc, int voters) const {
    device::for_elements(piece.count, true, [&](auto n, std::uint32_t i) {
      auto x = device::load<n>(acc + i);
#pragma unroll
      for (int k = 0; k < n; ++k) x.v[k] = majority(x.v[k], static_cast<float>(voters));
      device::store<n>(acc + i, x);
    });
  }
};

}  // namespace crimp::signs
