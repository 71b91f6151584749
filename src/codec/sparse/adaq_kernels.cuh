// AdaQ in a block: the selected elements of a piece as two means, and their signs (WIRE_FORMAT.md, section 4.17). What
// is selected is the exact selection of both sides (select_kernels.cuh).
#pragma once
#include "codec/coding/select_kernels.cuh"
#include "codec/sparse/sparse_kernels.cuh"

namespace crimp::adaq {

struct Device : device::PieceDevice {
  static constexpr bool kFixedSize = false, kSelects = true, kAddsAll = true;
  static constexpr std::uint32_t kDecodeBlocks = 3;
  static constexpr std::uint32_t kHead = sizeof(std::uint16_t), kMeans = 2 * sizeof(float), kLanes = 16, kWindow = 2048;
  struct Shared {
    device::BlockScratch scratch;
    float means[2];  // of the positives, of the negatives
    alignas(16) index_set::Words words;
    union {
      float window[kWindow];  // selected elements, one behind another
      sparse::OpenedShared opened;
    };
  };
  float ratio = 0;

  std::size_t select_bytes(const ChunkTable& t) const { return select::Scratch::bytes(t, 2); }
  int select(const device::Source& source, const RandomCounter&, Selection* selections, void* scratch, Stream s) const {
    return select::find_largest<2>(source, ratio, true, select::Scratch(source.table, scratch, 2), selections, s);
  }

  __device__ std::uint32_t encode(const device::Piece& piece, float* a, std::uint8_t* out, Shared& own) const {
    const index_set::Size size = sparse::pick(piece, a, own.words, own.scratch);
    if (size.count == 0) return 0;
    const std::uint32_t sign_bytes = static_cast<std::uint32_t>(index_set::bitmap_bytes(size.count));
    // The first warp has the host's sums: lane l that of the positives in lane l, lane l + 16 that of the negatives.
    float sum = 0.0f;
    std::uint32_t mine = 0;
    for (std::uint32_t first = 0; first < size.count; first += kWindow) {
      index_set::for_set(own.words, piece.count, [&](std::uint32_t i, std::uint32_t j) {
        if (j - first < kWindow) own.window[j - first] = a[i];
      });
      __syncthreads();
      const std::uint32_t n = size.count - first < kWindow ? size.count - first : kWindow;
      for (std::uint32_t begin = device::kWarp * device::warp(); begin < n; begin += device::kThreads) {
        const std::uint32_t j = begin + device::lane(),
                            bits = __ballot_sync(device::kAllLanes, j < n && own.window[j] < 0.0f),
                            at = (first + begin) / 8 + device::lane();
        if (device::lane() < 4 && at < sign_bytes)
          out[kHead + kMeans + at] = static_cast<std::uint8_t>(bits >> 8 * device::lane());
      }
      if (device::warp() == 0) {
#pragma unroll 8
        for (std::uint32_t j = device::lane() % kLanes; j < n; j += kLanes) {
          const float x = own.window[j];
          const bool here = (x < 0.0f) == (device::lane() >= kLanes);
          sum += here ? fabsf(x) : 0.0f;  // a sum is never -0
          mine += here;
        }
      }
      __syncthreads();
    }
    if (device::warp() == 0) {
      const std::uint32_t negatives = __reduce_add_sync(device::kAllLanes, device::lane() < kLanes ? 0 : mine),
                          users = device::lane() < kLanes ? size.count - negatives : negatives;
#pragma unroll
      for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(device::kAllLanes, sum, half);
      const float mean = users ? fminf(sum / static_cast<float>(users), kMostMean) : 0.0f;
      if (device::lane() % kLanes == 0) {
        own.means[device::lane() / kLanes] = mean;
        device::store_bytes(out + kHead + sizeof(float) * (device::lane() / kLanes), mean);
      }
      if (device::lane() == 0)
        *reinterpret_cast<std::uint16_t*>(out) =
            static_cast<std::uint16_t>(size.head(piece.count));  // slots are aligned
    }
    __syncthreads();
    if (piece.keep)
      index_set::for_set(own.words, piece.count, [&](std::uint32_t i, std::uint32_t) {
        const float x = a[i];
        a[i] = x < 0.0f ? x + own.means[1] : x - own.means[0];
      });
    const std::uint32_t before = kHead + kMeans + sign_bytes;
    index_set::encode_block(own.words, piece.count, size, out + before);
    return before + size.bytes(piece.count);
  }

  template <class Work>
  __device__ void for_sent(const Shared& own, std::uint32_t count, Work&& work) const {
    index_set::for_set(own.words, count, [&](std::uint32_t i, std::uint32_t) { work(i); });
  }

  // A mean is there exactly where something has it.
  __device__ static bool legal(float mean, std::uint32_t users) {
    const std::uint32_t bits = __float_as_uint(mean);
    return users ? bits - 1 < 0x7f7fffffu : bits == 0;
  }

  __device__ bool decode_add(const device::Piece& piece, const std::uint8_t* in, std::uint32_t bytes, float* acc,
                             Shared& own) const {
    if (bytes == 0) return true;
    if (bytes < kHead + kMeans) return false;
    const auto head = device::load_bytes<std::uint16_t>(in);
    const float up = device::load_bytes<float>(in + kHead),
                down = device::load_bytes<float>(in + kHead + sizeof(float));
    const std::uint32_t count = index_set::count_of(head, piece.count),
                        sign_bytes = static_cast<std::uint32_t>(index_set::bitmap_bytes(count)),
                        before = kHead + kMeans + sign_bytes;
    if (count == 0 || bytes < before) return false;
    const std::uint8_t* signs = in + kHead + kMeans;
    if (count % 8 && signs[sign_bytes - 1] >> count % 8) return false;
    std::uint32_t mine = 0, negatives;
    for (std::uint32_t b = threadIdx.x; b < sign_bytes; b += device::kThreads)
      mine += static_cast<std::uint32_t>(__popc(signs[b]));
    device::block_offsets(mine, own.scratch, &negatives);
    if (!legal(up, count - negatives) || !legal(down, negatives)) return false;
    return index_set::decode_block<1>(
        in + before, bytes - before, head, piece.count, own.words, own.scratch, [](std::uint32_t j) { return j; },
        [&](std::uint32_t i, std::uint32_t j) { acc[i] += signs[j / 8] >> j % 8 & 1 ? -down : up; });
  }

  // The first warp sees whether signs and means are legal.
  __device__ sparse::Front open(const device::Piece& piece, const device::Body& at, std::uint32_t t,
                                float (&x)[sparse::kOpenedEach]) const {
    if (at.bytes < kHead + kMeans) return {0, 0, 0, false};
    if (at.bytes > sparse::most_opened_bytes(kHead + kMeans + sparse::kMostOpened / 8)) return sparse::Front::other();
    const auto head = device::load_bytes<std::uint16_t>(at.in);
    const float up = device::load_bytes<float>(at.in + kHead),
                down = device::load_bytes<float>(at.in + kHead + sizeof(float));
    const std::uint8_t* const signs = at.in + kHead + kMeans;
    const std::uint32_t room = at.bytes - (kHead + kMeans);
#pragma unroll
    for (std::uint32_t k = 0; k < sparse::kOpenedEach; ++k) {
      const std::uint32_t j = t + k * sparse::kOpeners;
      x[k] = j / 8 < room && signs[j / 8] >> j % 8 & 1 ? -down : up;
    }
    sparse::Front front{head, index_set::count_of(head, piece.count), 0, true};
    const std::uint32_t sign_bytes = static_cast<std::uint32_t>(index_set::bitmap_bytes(front.count));
    front.before = kHead + kMeans + sign_bytes;
    front.legal = front.count != 0 && at.bytes >= front.before;
    if (!front.legal || front.count > sparse::kMostOpened || t >= device::kWarp) return front;
    std::uint32_t mine = 0;
#pragma unroll
    for (std::uint32_t b = t; b < sparse::kMostOpened / 8; b += device::kWarp)
      if (b < sign_bytes) {
        const std::uint32_t byte = signs[b];
        mine += static_cast<std::uint32_t>(__popc(byte));
        if (b + 1 == sign_bytes && front.count % 8 && byte >> front.count % 8) front.legal = false;
      }
    const std::uint32_t negatives = __reduce_add_sync(device::kAllLanes, mine);
    front.legal = front.legal && legal(up, front.count - negatives) && legal(down, negatives);
    return front;
  }
  template <class Payloads>
  __device__ void add_all(const device::Piece& piece, const Payloads& payloads, float* acc, Shared& own) const {
    sparse::add_together(*this, piece, payloads, acc, own);
  }
};

}  // namespace crimp::adaq
