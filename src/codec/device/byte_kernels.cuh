// A byte per element behind a head (scales), in a block: natural, 8bit and fp8. Their bytes are made in shared memory
// and leave it, or come to it, 16 at a time, whatever their address. A codec supplies
//
//   struct Type {
//     static constexpr bool kDithered, kChecked;  // encoding takes random bits; not every byte is legal
//     static constexpr std::uint32_t kMostHead;
//     struct Shared;
//     __device__ std::uint32_t head_bytes(std::uint32_t count) const;
//     // Writes the head; returns what all elements have in common.
//     __device__ auto measure(const float* a, std::uint32_t count, std::uint8_t* head, bool keep, Shared&) const;
//     // of the elements i to i + 3 (i % 4 = 0)
//     __device__ auto at(common, std::uint32_t i, const std::uint8_t* head, const Shared&) const;
//     struct Head, DecodeShared;                                  // sums.cuh, with prepare, head and legal
//     __device__ std::uint32_t scale(const std::uint8_t* in, std::uint32_t i) const;  // as `at`, from a payload
//     __device__ auto with(const Head&, std::uint32_t scale, const DecodeShared&) const;
//   };
//
// at returns value(std::uint32_t code) and code(float a, std::uint32_t random), or where not kDithered word(), the
// codes of up to four elements, a byte each; with returns value and where kChecked legal() and legal(std::uint32_t
// code), in whose place legal_four(std::uint32_t codes) is asked where there is one. measure is called by all threads,
// and ends with a barrier where it writes what other threads read.
#pragma once
#include "codec/coding/dither_kernels.cuh"
#include "codec/device/sums.cuh"

namespace crimp::device {

// Bytes 0 of four words, with the signs of four numbers in bit 7.
__device__ inline std::uint32_t signed_bytes(const std::uint32_t (&code)[4], const Floats<4>& x) {
  const auto sign = [&](int k) { return __float_as_uint(x.v[k]); };
  const std::uint32_t codes =
                          __byte_perm(__byte_perm(code[0], code[1], 0x40), __byte_perm(code[2], code[3], 0x40), 0x5410),
                      signs =
                          __byte_perm(__byte_perm(sign(0), sign(1), 0x73), __byte_perm(sign(2), sign(3), 0x73), 0x5410);
  return codes | (signs & 0x80808080u);
}

template <class Type>
struct ByteDevice : QuadSums {
  static constexpr std::uint32_t kOtherBlocks = Type::kDithered ? 2 : 4, kDecodeBlocks = Type::kChecked ? 2 : 3;
  static constexpr bool kWhole = true, kAhead = Type::kChecked;
  static constexpr std::uint32_t kWholeSlots = Type::kChecked ? 5 : 3;
  static constexpr int kWholePayloads = 4;
  using Head = typename Type::Head;
  using DecodeShared = typename Type::DecodeShared;
  struct Slot {
    std::uint32_t codes, scale;
  };
  struct Shared {
    typename Type::Shared own;
    alignas(16) std::uint8_t bytes[(3 + Type::kMostHead + kPieceElements + 15) / 16 * 16];
  };
  Type type;

  __device__ std::uint32_t bytes(std::uint32_t count) const { return type.head_bytes(count) + count; }
  // The codes begin at a multiple of four.
  __device__ static std::uint8_t* head_of(Shared& own, std::uint32_t head_bytes) {
    return own.bytes + (-head_bytes & 3);
  }

  template <bool keep, class Common>
  __device__ void make_codes(const Piece& piece, const Common& common, float* a, const std::uint8_t* head,
                             std::uint8_t* codes, const Shared& own) const {
    if constexpr (Type::kDithered) {
      const auto with = type.at(common, 0, head, own.own);
      const std::uint32_t whole = piece.count / dither::kTile;
#pragma unroll 1
      for (std::uint32_t tile = threadIdx.x / dither::kPairs; tile < whole; tile += dither::kPairTiles) {
        const dither::Pairs pairs(tile);
        pairs(piece.counter, tile, [&](std::uint32_t, std::uint32_t in_tile, const dither::PairBits& bits) {
          const std::uint32_t i = tile * dither::kTile + in_tile;
          auto x = load<2>(a + i);
          const std::uint32_t code = with.code(x.v[0], bits.add_first(0)),
                              other = with.code(x.v[1], bits.add_second(0));
          *reinterpret_cast<std::uint16_t*>(codes + i) = static_cast<std::uint16_t>(__byte_perm(code, other, 0x40));
          if constexpr (keep) {
            x.v[0] -= with.value(code);
            x.v[1] -= with.value(other);
            store<2>(a + i, x);
          }
        });
      }
      if (const std::uint32_t i = whole * dither::kTile + threadIdx.x; i < piece.count) {
        const std::uint32_t code = with.code(a[i], dither::bits16(piece.counter, dither::kRounding, i));
        codes[i] = static_cast<std::uint8_t>(code);
        if constexpr (keep) a[i] -= with.value(code);
      }
    } else {
      for_elements(piece.count, true, [&](auto n, std::uint32_t i) {
        const auto with = type.at(common, i, head, own.own);
        auto x = load<n>(a + i);
        const std::uint32_t word = with.word(x);
        if constexpr (n == 4) *reinterpret_cast<std::uint32_t*>(codes + i) = word;
        else codes[i] = static_cast<std::uint8_t>(word);
        if constexpr (keep) {
#pragma unroll
          for (int k = 0; k < n; ++k) x.v[k] -= with.value(word >> (8 * k) & 0xff);
          store<n>(a + i, x);
        }
      });
    }
  }

  __device__ std::uint32_t encode(const Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const std::uint32_t head_bytes = type.head_bytes(piece.count);
    std::uint8_t *head = head_of(own, head_bytes), *codes = head + head_bytes;
    const auto common = type.measure(a, piece.count, head, piece.keep, own.own);
    if (piece.keep) make_codes<true>(piece, common, a, head, codes, own);
    else make_codes<false>(piece, common, a, head, codes, own);
    __syncthreads();
    copy_bytes(out, head, bytes(piece.count));
    return bytes(piece.count);
  }

  __device__ void prepare(DecodeShared& own) const { type.prepare(own); }
  __device__ Head head(const Piece&, const std::uint8_t* in) const { return type.head(in); }
  __device__ Slot fetch(const Piece& piece, const std::uint8_t* in, std::uint32_t j) const {
    const std::size_t i = first_of(j);
    return {load_word(in + type.head_bytes(piece.count), i, piece.count),
            behind(i, piece.count) ? type.scale(in, static_cast<std::uint32_t>(i)) : 0u};
  }
  __device__ bool legal(const Piece&, const Head& head) const { return type.legal(head); }
  __device__ bool add(const Piece& piece, const Head& head, const Slot& slot, std::uint32_t j, float (&sums)[kEach],
                      const DecodeShared& own) const {
    const auto with = type.with(head, slot.scale, own);
    const std::uint32_t left = behind(first_of(j), piece.count);
    bool legal = true;
    if constexpr (Type::kChecked) legal = left == 0 || with.legal();
#pragma unroll
    for (std::uint32_t k = 0; k < kEach; ++k) {
      const std::uint32_t code = slot.codes >> (8 * k) & 0xff;
      if constexpr (Type::kChecked) legal = legal && (k >= left || with.legal(code));
      sums[k] += with.value(code);  // of no element behind the end
    }
    return legal;
  }

  struct Whole {
    using Head = ByteDevice::Head;
    using Slot = ByteDevice::Slot;
    const Type& type;
    std::uint32_t head_bytes;
    __device__ Head head(const std::uint8_t* in) const { return type.head(in); }
    __device__ Slot fetch(const std::uint8_t* in, std::uint32_t j) const {
      return {word_at(in + head_bytes + 4 * threadIdx.x + j * 4 * kThreads),
              type.scale(in, 4 * threadIdx.x + j * 4 * kThreads)};
    }
    __device__ bool open(const ByteDevice&, const Head& head) const { return type.legal(head); }
    __device__ bool add(const Head& head, const Slot& slot, std::uint32_t, float (&sums)[kEach],
                        const DecodeShared& own) const {
      const auto with = type.with(head, slot.scale, own);
      bool legal = true;
      if constexpr (Type::kChecked) legal = with.legal();
      constexpr bool four = requires { with.legal_four(slot.codes); };
      if constexpr (four) legal = legal && with.legal_four(slot.codes);
#pragma unroll
      for (std::uint32_t k = 0; k < kEach; ++k) {
        const std::uint32_t code = __byte_perm(slot.codes, 0, 0x4440 | k);
        if constexpr (Type::kChecked && !four) legal = legal && with.legal(code);
        sums[k] += with.value(code);
      }
      return legal;
    }
  };
  // Where the codes begin at a multiple of four.
  template <class Work>
  __device__ bool with_whole(Work&& work) const {
    const std::uint32_t head_bytes = type.head_bytes(kPieceElements);
    if (head_bytes % 4 != 0) return false;
    work(Whole{type, head_bytes});
    return true;
  }
};

}  // namespace crimp::device
