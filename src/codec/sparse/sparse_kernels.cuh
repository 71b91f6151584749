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
  __device__ bool selects(float a, std::uint32_t i) const { return a > up_of(i) || a < -down_of(i); }
  __device__ float up_of(std::uint32_t i) const { return i < up_ties ? before(up) : up; }
  __device__ float down_of(std::uint32_t i) const { return i < down_ties ? before(down) : down; }
  // Whether the limits are the same for all elements.
  __device__ bool uniform(const device::Piece& piece) const {
    return (up_ties == 0 || up_ties == piece.count) && (down_ties == 0 || down_ties == piece.count);
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
  const auto pick_all = [&](auto&& selects) {
    constexpr std::uint32_t at_once = 4;  // words of a warp
    const std::uint32_t whole = piece.count / device::kWarp;
    std::uint32_t w = device::warp();
#pragma unroll 1
    for (; w + (at_once - 1) * device::kWarps < whole; w += at_once * device::kWarps) {
      const std::uint32_t i = device::kWarp * w + device::lane();
      float x[at_once];
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b) x[b] = a[i + b * device::kThreads];
#pragma unroll
      for (std::uint32_t b = 0; b < at_once; ++b) {
        const std::uint32_t bits = __ballot_sync(device::kAllLanes, selects(x[b], i + b * device::kThreads));
        if (device::lane() == 0) words.bits[w + b * device::kWarps] = bits;
      }
    }
#pragma unroll 1
    for (; device::kWarp * w < piece.count; w += device::kWarps) {
      const std::uint32_t i = device::kWarp * w + device::lane(),
                          bits = __ballot_sync(device::kAllLanes, i < piece.count && selects(a[i], i));
      if (device::lane() == 0) words.bits[w] = bits;
    }
  };
  if (limits.uniform(piece))
    pick_all([up = limits.up_of(0), down = -limits.down_of(0)](float x, std::uint32_t) { return x > up || x < down; });
  else pick_all([&](float x, std::uint32_t i) { return limits.selects(x, i); });
  __syncthreads();
  return index_set::measure(words, piece.count, scratch);
}

// Pieces of some payloads that are opened at once, each by warps of its own: those with few elements, as gaps. A thread
// has the values of some of them; what else is there is decoded by all of the block.
inline constexpr std::uint32_t kOpened = 4, kOpeners = device::kThreads / kOpened, kOpenedEach = 4,
                               kMostOpened = kOpenedEach * kOpeners;
struct OpenedShared {
  enum : std::uint32_t { none, few, other };
  std::uint32_t state[kOpened], count[kOpened];
  std::uint16_t index[kOpened][kMostOpened];
};
// What is opened has no more bytes than this, its front of `before` bytes included.
__device__ constexpr std::uint32_t most_opened_bytes(std::uint32_t before) {
  return before + kMostOpened + kPieceElements / index_set::kSkip;
}
// What a codec finds in front of a piece's set. legal: of what this thread has looked at; behind what is not, nothing
// is looked at.
struct Front {
  std::uint32_t head = 0, count = 0, before = 0;
  bool legal = true;

  // Of a piece that is too long to be opened: nothing was looked at.
  __device__ static Front other() { return {0, kMostOpened + 1, 0, true}; }
};
// codec.open(piece, at, t, x), of the kOpeners threads from t = 0 on, is the front of a piece of at least one byte and
// makes x[k] of the values of the elements t + k kOpeners, where these are in [at.in, at.in + at.bytes).
template <class Codec, class Payloads, class Shared>
__device__ inline void add_together(const Codec& codec, const device::Piece& piece, const Payloads& payloads,
                                    float* acc, Shared& own) {
  const std::uint32_t mine = threadIdx.x / kOpeners, t = threadIdx.x % kOpeners;
  OpenedShared& opened = own.opened;
#pragma unroll 1
  for (std::uint32_t r = 0; r < payloads.count; r += kOpened) {
    float x[kOpenedEach] = {};
    const bool here = r + mine < payloads.count;
    device::Body at = here ? payloads[r + mine] : device::Body{};
    if (at.bytes != 0) {
      at.in = device::global(at.in);
      const Front front = codec.open(piece, at, t, x);
      const bool gaps = front.count <= kMostOpened && !(front.head & index_set::kBitmap);
      bool legal = !__any_sync(device::kAllLanes, !front.legal);
      if (t < device::kWarp) {
        if (legal && gaps)
          legal = !__any_sync(device::kAllLanes, !index_set::decode_gaps(at.in + front.before, at.bytes - front.before,
                                                                         front.count, piece.count, opened.index[mine]));
        if (t == 0) {
          opened.state[mine] = !legal ? OpenedShared::none : gaps ? OpenedShared::few : OpenedShared::other;
          opened.count[mine] = front.count;
        }
      }
      if (!legal && device::lane() == 0) payloads.malformed(r + mine);
    } else if (t == 0) {
      opened.state[mine] = OpenedShared::none;
    }
    __syncthreads();
#pragma unroll 1
    for (std::uint32_t b = 0; b < kOpened; ++b) {
      const std::uint32_t state = opened.state[b];
      if (state == OpenedShared::none) continue;
      if (state == OpenedShared::few) {
        if (mine == b) {
          const std::uint32_t n = opened.count[b];
#pragma unroll
          for (std::uint32_t k = 0; k < kOpenedEach; ++k)
            if (const std::uint32_t j = t + k * kOpeners; j < n) acc[opened.index[b][j]] += x[k];
        }
      } else {
        const device::Body other = payloads[r + b];
        if (!codec.decode_add(piece, other.in, other.bytes, acc, own) && threadIdx.x == 0) payloads.malformed(r + b);
      }
      __syncthreads();
    }
    __syncthreads();
  }
}

enum class Method : std::uint8_t { threshold, topk, dgc, sidco };

struct Device : device::PieceDevice {
  static constexpr bool kFixedSize = false, kSelects = true, kAddsAll = true;
  static constexpr std::uint32_t kDecodeBlocks = 3;
  static constexpr std::uint32_t kHead = sizeof(std::uint16_t);
  struct Shared {
    device::BlockScratch scratch;
    alignas(16) index_set::Words words;
    OpenedShared opened;
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

  template <class Work>
  __device__ void for_sent(const Shared& own, std::uint32_t count, Work&& work) const {
    index_set::for_set(own.words, count, [&](std::uint32_t i, std::uint32_t) { work(i); });
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
        in + before, bytes - before, head, piece.count, own.words, own.scratch,
        [&](std::uint32_t j) {
          return half ? device::load_bytes<std::uint16_t>(in + kHead + 2 + 2 * j)
                      : __float_as_uint(device::load_bytes<float>(in + kHead + 4 * j));
        },
        [&](std::uint32_t i, std::uint32_t bits) {
          const float x = half ? device::wide_half(static_cast<std::uint16_t>(bits)) * up : __uint_as_float(bits);
          finite = finite && (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
          acc[i] += x;
        });
    return legal && !device::block_any(!finite);
  }

  template <bool halves>
  __device__ Front open_as(const device::Piece& piece, const device::Body& at, std::uint32_t t,
                           float (&x)[kOpenedEach]) const {
    constexpr std::uint32_t each = halves ? 2 : 4, values = halves ? kHead + 2 : kHead;
    if (at.bytes < values) return {0, 0, 0, false};
    if (at.bytes > most_opened_bytes(values + kMostOpened * each)) return Front::other();
    const auto head = device::load_bytes<std::uint16_t>(at.in);
    const std::uint32_t scale = halves ? device::load_bytes<std::uint16_t>(at.in + kHead) : 1;
#pragma unroll
    for (std::uint32_t k = 0; k < kOpenedEach; ++k) {
      const std::uint32_t from = values + (t + k * kOpeners) * each;
      if (from + each > at.bytes) continue;
      if constexpr (halves) x[k] = device::wide_half(device::load_bytes<std::uint16_t>(at.in + from));
      else x[k] = device::load_bytes<float>(at.in + from);
    }
    Front front{head, index_set::count_of(head, piece.count), 0, true};
    front.before = values + front.count * each;
    front.legal = front.count != 0 && at.bytes >= front.before && fp16::legal(scale);
#pragma unroll
    for (std::uint32_t k = 0; k < kOpenedEach; ++k) {
      if constexpr (halves) x[k] = x[k] * __uint_as_float(fp16::scale_bits(scale));
      if (t + k * kOpeners < front.count && (__float_as_uint(x[k]) & 0x7f800000u) == 0x7f800000u) front.legal = false;
    }
    return front;
  }
  __device__ Front open(const device::Piece& piece, const device::Body& at, std::uint32_t t,
                        float (&x)[kOpenedEach]) const {
    return half ? open_as<true>(piece, at, t, x) : open_as<false>(piece, at, t, x);
  }
  template <class Payloads>
  __device__ void add_all(const device::Piece& piece, const Payloads& payloads, float* acc, Shared& own) const {
    add_together(*this, piece, payloads, acc, own);
  }
};

}  // namespace crimp::sparse
