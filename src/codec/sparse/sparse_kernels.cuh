// The pieces of topk, threshold, dgc and sidco in a block: values and places of what the group's Selection takes
// (WIRE_FORMAT.md, section 4.18). How the Selection comes about is in select_kernels.cuh, dgc_kernels.cuh and
// sidco_kernels.cuh.
#pragma once
#include "codec/cast/fp16.hpp"
#include "codec/coding/index_set_kernels.cuh"
#include "codec/device/piece_kernels.cuh"
#include "codec/sparse/sparse.hpp"
#include "core/half.hpp"

namespace crimp::sparse {

// A Selection as one piece sees it: of elements that equal a threshold the first ones are selected, for these the limit
// is the float before.
struct Limits {
  float up, down;
  std::uint32_t up_ties, down_ties;

  __device__ Limits(const device::Piece& piece)
      : up(piece.selection.up), down(piece.selection.down), up_ties(ties(piece, piece.selection.up_ties, up)),
        down_ties(ties(piece, piece.selection.down_ties, down)) {}
  __device__ bool selects(float a, std::uint32_t i) const {
    return a > (i < up_ties ? before(up) : up) || a < -(i < down_ties ? before(down) : down);
  }

 private:
  __device__ static float before(float x) { return __uint_as_float(__float_as_uint(x) - 1); }
  __device__ static std::uint32_t ties(const device::Piece& piece, std::uint64_t limit, float threshold) {
    if (!(threshold > 0.0f) || limit <= piece.in_group) return 0;
    const std::uint64_t here = limit - piece.in_group;
    return here < piece.count ? static_cast<std::uint32_t>(here) : piece.count;
  }
};

// Sets the bits of the elements of a that are selected, and measures the set. Begins after and ends with a barrier.
__device__ inline index_set::Size pick(const device::Piece& piece, const float* a, index_set::Words& words,
                                       device::BlockScratch& scratch) {
  const Limits limits(piece);
  for (std::uint32_t w = device::warp(); device::kWarp * w < piece.count; w += device::kWarps) {
    const std::uint32_t i = device::kWarp * w + device::lane(),
                        bits = __ballot_sync(device::kAllLanes, i < piece.count && limits.selects(a[i], i));
    if (device::lane() == 0) words.bits[w] = bits;
  }
  __syncthreads();
  return index_set::measure(words, piece.count, scratch);
}

enum class Method : std::uint8_t { threshold, topk, dgc, sidco };

struct Device : device::PieceDevice {
  static constexpr bool kFixedSize = false, kSelects = true;
  static constexpr std::uint32_t kHead = sizeof(std::uint16_t);
  struct Shared {
    device::BlockScratch scratch;
    alignas(16) index_set::Words words;
  };
  Method method = Method::topk;
  bool half = false;  // values are binary16
  Tail tail = Tail::exponential;
  int stages = 0;
  float ratio = 0, sample = 0, limit = 0, reuse = 1;

  std::size_t select_bytes(const ChunkTable&) const;
  int select(const device::Source&, const RandomCounter&, Selection*, void* scratch, Stream) const;

  __device__ std::uint32_t value_bytes() const { return half ? 2 : 4; }
  __device__ std::uint32_t values_at() const { return half ? kHead + 2 : kHead; }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const index_set::Size size = pick(piece, a, own.words, own.scratch);
    if (size.count == 0) return 0;
    // Slots are aligned, so halves of words are.
    auto* values = reinterpret_cast<std::uint16_t*>(out);
    if (threadIdx.x == 0) values[0] = static_cast<std::uint16_t>(size.head(piece.count));
    ++values;
    float up = 1.0f, down = 1.0f;
    if (half) {
      std::uint32_t top = 0;
      index_set::for_set(own.words, piece.count,
                         [&](std::uint32_t i, std::uint32_t) { top = max(top, __float_as_uint(a[i]) & 0x7fffffffu); });
      const std::uint32_t scale = fp16::scale_byte(device::block_max(top, own.scratch));
      up = __uint_as_float(fp16::scale_bits(scale));
      down = __uint_as_float(fp16::inverse_bits(scale));
      if (threadIdx.x == 0) values[0] = static_cast<std::uint16_t>(scale);
      ++values;
    }
    index_set::for_set(own.words, piece.count, [&](std::uint32_t i, std::uint32_t j) {
      const float x = a[i];
      float left = 0.0f;
      if (half) {
        // A residual may be beyond what the largest scale reaches: what the clamp cuts off is kept like what rounding
        // does.
        const std::uint16_t sent = half_from_float(fminf(fmaxf(x * down, -fp16::kLargest), fp16::kLargest));
        values[j] = sent;
        left = x - float_from_half(sent) * up;
      } else {
        values[2 * j] = static_cast<std::uint16_t>(__float_as_uint(x));
        values[2 * j + 1] = static_cast<std::uint16_t>(__float_as_uint(x) >> 16);
      }
      if (piece.keep) a[i] = left;
    });
    const std::uint32_t before = values_at() + size.count * value_bytes();
    index_set::encode_block(own.words, piece.count, size, out + before);
    return before + size.bytes(piece.count);
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t bytes, float* acc,
                             Shared& own) const {
    if (bytes == 0) return true;
    if (bytes < values_at()) return false;
    const auto head = device::load_bytes<std::uint16_t>(in);
    const std::uint32_t count = index_set::count_of(head, piece.count), before = values_at() + count * value_bytes();
    if (count == 0 || bytes < before) return false;
    const std::uint32_t scale = half ? device::load_bytes<std::uint16_t>(in + kHead) : 1;
    if (!fp16::legal(scale)) return false;
    const float up = __uint_as_float(fp16::scale_bits(scale));
    bool finite = true;
    const bool legal = index_set::decode_block(
        in + before, bytes - before, head, piece.count, own.words, own.scratch, [&](std::uint32_t i, std::uint32_t j) {
          const float x = half ? float_from_half(device::load_bytes<std::uint16_t>(in + values_at() + 2 * j)) * up
                               : device::load_bytes<float>(in + kHead + 4 * j);
          finite = finite && (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
          acc[i] += x;
        });
    return legal && !device::block_any(!finite);
  }
};

}  // namespace crimp::sparse
