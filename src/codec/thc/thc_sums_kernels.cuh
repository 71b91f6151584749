// THC's integer sums (codec/sum_steps.hpp). A block has a piece where values are touched, with the functions of
// thc_encoder.cuh, and a warp a tile of 128 coordinates where only integers are: four neighbours a lane, of which every
// row of indices and every part of packed sums (codec/packed_sums.hpp) has one word.
#pragma once
#include "codec/device_sums.hpp"
#include "codec/thc/thc_encoder.cuh"

namespace crimp::thc {

struct Loaded {
  alignas(16) float a[kPieceElements];
};

// values + memory, to shared memory. A barrier is due behind it.
__device__ inline void load_values(const SumPiece& piece, const device::In& values, bool quads, float* a) {
  const FeedbackPolicy plain;
  GroupEntry at{};
  at.in = device::global(piece.residual_in);
  if (!values.is(Dtype::f32)) {
    values.load_piece(piece.count, a);
    __syncthreads();
    if (at.in) device::add_memory<device::Entry::added, 1>(plain, at, piece.count, quads, a);
    return;
  }
  const auto* floats = static_cast<const float*>(values.at);
  if (at.in) device::load_piece<device::Entry::added, Encoder::kFetched>(plain, floats, at, piece.count, quads, a);
  else device::load_piece<device::Entry::values, Encoder::kFetched>(plain, floats, at, piece.count, quads, a);
}

__global__ void __launch_bounds__(device::kThreads, 4)
    find_norms(const SumPiece* pieces, device::In values, float* norms) {
  auto& shared = device::shared_memory<Loaded>();
  const SumPiece piece = pieces[blockIdx.x];
  values = values + piece.offset;
  load_values(piece, values, values.quads() && device::aligned16(piece.residual_in), shared.a);
  __syncthreads();
  const std::uint32_t block = device::warp();
  if (block >= blocks(piece.count)) return;
  const std::uint32_t rest = piece.count - block * kBlock;
  const float norm = norm_of(shared.a + block * kBlock, rest < kBlock ? rest : kBlock);
  if (device::lane() == 0) norms[piece.norm + block] = norm;
}

__device__ inline device::Piece piece_of(const SumPiece& piece, bool keep, const RandomCounter& counter) {
  return {piece.count, keep, {counter.element + piece.offset, counter.step, counter.rank}, {}, 0};
}
__device__ inline void begin_sums(const device::Piece& piece, const float* norms, const Encoder& device,
                                  Encoder::Shared& own) {
  if (threadIdx.x < blocks(piece.count)) device.set_norm(piece, threadIdx.x, norms[threadIdx.x], own);
  device.begin(piece, own);
}

__global__ void __launch_bounds__(device::kThreads, Encoder::kEncodeBlocks)
    encode_indices(const SumPiece* pieces, device::In values, RandomCounter counter, const float* norms,
                   std::uint64_t coordinates, Encoder device, std::uint8_t* indices) {
  auto& shared = device::shared_memory<device::EncodeShared<Encoder>>();
  const SumPiece piece = pieces[blockIdx.x];
  values = values + piece.offset;
  float* const left = device::global(piece.residual_out);
  const bool quads = values.quads() && device::aligned16(piece.residual_in, left);
  load_values(piece, values, quads, shared.a);
  const device::Piece encoded = piece_of(piece, left != nullptr, counter);
  begin_sums(encoded, norms + piece.norm, device, shared.own);  // a barrier follows
  device.encode_blocks(encoded, shared.a, indices + piece.coordinate * device.bits_ / 8, shared.own);
  if (blockIdx.x + 1 == gridDim.x) {
    std::uint8_t* const end = indices + coordinates * device.bits_ / 8;
    for (std::uint8_t* to =
             indices + piece.coordinate * device.bits_ / 8 + index_bytes(piece.count, device.bits_) + threadIdx.x;
         to < end; to += device::kThreads)
      *to = 0;
  }
  if (!left) return;
  __syncthreads();
  device::store_left(shared.a, piece.count, quads, left);
}

// Sums of many ranks leave 16 bits: floats, in the order of the encoder's rotation.
struct SumsShared {
  alignas(16) float y[kAtOnce * kBlock];
  alignas(16) Signs signs;
};
__global__ void __launch_bounds__(device::kThreads, 3)
    rotate_back(const SumPiece* pieces, const std::uint16_t* sums, const float* norms, std::int32_t middle,
                std::int32_t times, RandomCounter counter, DeviceTables device, device::Out out) {
  auto& own = device::shared_memory<SumsShared>();
  const SumPiece entry = pieces[blockIdx.x];
  out = out + entry.offset;
  sums += entry.coordinate;
  norms += entry.norm;
  const device::Piece piece = piece_of(entry, false, counter);
  draw_signs(piece, 0, own.signs);
  const std::uint32_t n = blocks(piece.count), slot = device::warp() / kWarpsOfBlock,
                      tile = device::warp() % kWarpsOfBlock * 2, in_tile = 4 * device::lane(),
                      place = threadIdx.x % kTile;
#pragma unroll 1
  for (std::uint32_t first = 0; first < n; first += kAtOnce) {
    __syncthreads();
    const std::uint32_t block = first + slot, begin = block * kBlock;
    if (block < n) {
      Four x[2] = {};
#pragma unroll
      for (std::uint32_t i = 0; i < 2; ++i) {
        if (tile + i >= Extent(piece.count, block).tiles) continue;
        const uint2 four = *reinterpret_cast<const uint2*>(sums + begin + (tile + i) * kTile + in_tile);
        const std::uint32_t words[2] = {four.x, four.y};
#pragma unroll
        for (int k = 0; k < 4; ++k)
          x[i].v[k] =
              static_cast<float>(static_cast<std::int32_t>(words[k / 2] >> (k % 2 * 16) & 0xffff) * times - middle);
      }
      rotate_tiles(x);
#pragma unroll
      for (std::uint32_t i = 0; i < 2; ++i)
        device::store<4>(own.y + slot * kBlock + (tile + i) * kTile + in_tile, x[i]);
    }
    __syncthreads();
    if (block >= n) continue;
    const Extent extent(piece.count, block);
    const float norm = norms[block], worth = norm * device.unit / static_cast<float>(extent.tiles * kTile);
    const std::uint32_t signs = std::uint32_t{own.signs[block * kTile + place]} << 24;
    float v[kTiles];
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j) v[j] = own.y[slot * kBlock + j * kTile + place];
    rotate_places(v);
#pragma unroll
    for (std::uint32_t j = 0; j < kTiles; ++j)
      if (const std::uint32_t e = j * kTile + place; e < extent.count)
        out.store<1>(begin + e, {norm == 0.0f ? 0.0f : with_sign(v[j] * worth, signs, static_cast<int>(7 - j))});
  }
}

// The table's values, as integers.
struct Values {
  std::uint32_t value[kMostLevels];
};
__device__ inline void load_integers(const DeviceTables& device, Values& to) {
  if (threadIdx.x < kMostLevels) {
    const std::int32_t centred = device.centred[threadIdx.x], g = static_cast<std::int32_t>(device.granularity);
    to.value[threadIdx.x] = static_cast<std::uint32_t>(g % 2 ? (centred + g) / 2 : centred + g / 2);
  }
  __syncthreads();
}
__device__ inline std::uint32_t word(const std::uint8_t* p) { return *reinterpret_cast<const std::uint32_t*>(p); }

// A warp's tile of indices: use(k, value) for the four neighbours of a lane.
template <class Use>
__device__ inline void integers_of(const std::uint8_t* tile, const DeviceTables& device, const Values& values,
                                   Use&& use) {
  const std::uint32_t h = device::lane() / 4, first = 4 * (device::lane() % 4);
  const std::uint32_t low = word(tile + device.row(h) * kLanes + first),
                      high = device.bits_ == 3 ? word(tile + 2 * kLanes + first) : 0;
#pragma unroll
  for (std::uint32_t k = 0; k < 4; ++k)
    use(k, values.value[(low >> (8 * k + device.shift(h)) & device.mask()) | (high >> (8 * k + 7 - h) & 1) << 2]);
}
__device__ inline std::uint64_t tile_of_warp() { return std::uint64_t{blockIdx.x} * device::kWarps + device::warp(); }

template <int bytes>  // of an integer
__global__ void __launch_bounds__(device::kThreads, 4)
    write_integers(const std::uint8_t* indices, std::uint64_t tiles, DeviceTables device, std::uint32_t* to) {
  auto& values = device::shared_memory<Values>();
  load_integers(device, values);
  const std::uint64_t tile = tile_of_warp();
  if (tile >= tiles) return;
  constexpr std::uint32_t words = bytes;  // of four integers
  std::uint32_t four[words] = {};
  integers_of(indices + tile * device.tile_bytes(), device, values,
              [&](std::uint32_t k, std::uint32_t v) { four[k * words / 4] |= v << (8 * bytes * (k % (4 / words))); });
  std::uint32_t* const mine = to + (tile * device::kWarp + device::lane()) * words;
  if constexpr (bytes == 1) *mine = four[0];
  else *reinterpret_cast<uint2*>(mine) = make_uint2(four[0], four[1]);
}

// Bits of the next part of a width, of which `low` bits have been.
__device__ inline std::uint32_t part_bits(std::uint32_t width, std::uint32_t low) {
  const std::uint32_t rest = width - low;
  return rest >= 8 ? 8 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
}

__global__ void __launch_bounds__(device::kThreads, 3)  // 32 registers spill
    add_shares(const std::uint8_t* indices, std::uint64_t stride, std::uint64_t tiles, std::uint32_t ranks,
               std::uint32_t width, DeviceTables device, std::uint8_t* to) {
  auto& values = device::shared_memory<Values>();
  load_integers(device, values);
  const std::uint64_t tile = tile_of_warp();
  if (tile >= tiles) return;
  indices += tile * device.tile_bytes();
  std::uint32_t sum[4] = {};
#pragma unroll 4
  for (std::uint32_t r = 0; r < ranks; ++r)
    integers_of(indices + r * stride, device, values, [&](std::uint32_t k, std::uint32_t v) { sum[k] += v; });
  to += tile * 16 * width;
#pragma unroll 1
  for (std::uint32_t low = 0; low < width;) {
    const std::uint32_t bits = part_bits(width, low), words = 4 * bits;
    std::uint32_t mine = 0, all = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) mine |= (sum[k] >> low & ((1u << bits) - 1)) << (8 * k);
#pragma unroll 1
    for (std::uint32_t q = 0; q < 8 / bits; ++q)
      all |= __shfl_sync(device::kAllLanes, mine, static_cast<int>((device::lane() + q * words) % device::kWarp))
             << (q * bits);
    if (device::lane() < words) reinterpret_cast<std::uint32_t*>(to)[device::lane()] = all;
    to += 16 * bits;
    low += bits;
  }
}

// Share r begins with unit floor(units * r / shares), which is `each` * r and a part of what is left over.
struct Shares {
  std::uint32_t shares, each, left, blocks;  // blocks: of a launch, for one share
  __device__ std::uint32_t begin(std::uint32_t r) const { return each * r + left * r / shares; }
};

__global__ void __launch_bounds__(device::kThreads, 4)
    unpack_shares(const std::uint8_t* bytes, std::uint64_t stride, Shares of, std::uint32_t width, std::uint32_t most,
                  std::uint16_t* sums, std::uint32_t* largest) {
  constexpr std::uint32_t kTilesOfUnit = static_cast<std::uint32_t>(kSumUnit / kTile);
  const std::uint32_t share = blockIdx.x / of.blocks, first = of.begin(share),
                      tile = blockIdx.x % of.blocks * device::kWarps + device::warp();
  if (tile >= (of.begin(share + 1) - first) * kTilesOfUnit) return;
  bytes += share * stride + std::uint64_t{tile} * 16 * width;
  sums += (std::uint64_t{first} * kTilesOfUnit + tile) * kTile;
  std::uint32_t sum[4] = {};
#pragma unroll 1
  for (std::uint32_t low = 0; low < width;) {
    const std::uint32_t bits = part_bits(width, low), words = 4 * bits, q = device::lane() / words;
    const std::uint32_t part = word(bytes + 4 * (device::lane() % words)) >> (q * bits);
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) sum[k] |= (part >> (8 * k) & ((1u << bits) - 1)) << low;
    bytes += 16 * bits;
    low += bits;
  }
  reinterpret_cast<uint2*>(sums)[device::lane()] = make_uint2(sum[0] | sum[1] << 16, sum[2] | sum[3] << 16);
  const std::uint32_t top = __reduce_max_sync(device::kAllLanes, max(max(sum[0], sum[1]), max(sum[2], sum[3])));
  if (top > most && device::lane() == 0) atomicMax(largest + share, top);
}

class Sums final : public DeviceSums {
 public:
  explicit Sums(const Tables& tables) : device_(tables) {}

  int norms(const SumChunk& chunk, float* norms, Stream s) const override {
    return device::launch<find_norms>(blocks_of(chunk), device::kThreads, sizeof(Loaded), s, chunk.pieces.data(),
                                      device::In(chunk.values), norms);
  }
  int encode(const SumChunk& chunk, const float* norms, std::uint64_t coordinates, std::uint8_t* indices,
             Stream s) const override {
    return device::launch<encode_indices>(blocks_of(chunk), device::kThreads, sizeof(device::EncodeShared<Encoder>), s,
                                          chunk.pieces.data(), device::In(chunk.values), chunk.counter, norms,
                                          coordinates, device_, indices);
  }
  int decode(const SumChunk& chunk, const std::uint16_t* sums, const float* norms, int ranks, Stream s) const override {
    const auto g = static_cast<std::int32_t>(device_.granularity), times = g % 2 ? 2 : 1;
    return device::launch<rotate_back>(blocks_of(chunk), device::kThreads, sizeof(SumsShared), s, chunk.pieces.data(),
                                       sums, norms, times * g / 2 * ranks, times, chunk.counter, device_,
                                       device::Out(chunk.out));
  }
  int integers(const std::uint8_t* indices, std::uint64_t coordinates, int bytes, void* to, Stream s) const override {
    constexpr auto narrow = &write_integers<1>;
    constexpr auto wide = &write_integers<2>;
    const std::uint64_t tiles = coordinates / kTile;
    auto* const words = static_cast<std::uint32_t*>(to);
    if (bytes == 1)
      return device::launch<narrow>(warps_of(tiles), device::kThreads, sizeof(Values), s, indices, tiles, device_,
                                    words);
    return device::launch<wide>(warps_of(tiles), device::kThreads, sizeof(Values), s, indices, tiles, device_, words);
  }
  int add(const IndexShares& indices, std::uint64_t coordinates, int width, std::uint8_t* to, Stream s) const override {
    const std::uint64_t tiles = coordinates / kTile;
    return device::launch<add_shares>(warps_of(tiles), device::kThreads, sizeof(Values), s, indices.bytes,
                                      indices.stride, tiles, indices.ranks, static_cast<std::uint32_t>(width), device_,
                                      to);
  }
  int unpack(const PackedShares& packed, std::uint64_t coordinates, std::uint32_t most, std::uint16_t* sums,
             std::uint32_t* largest, Stream s) const override {
    const auto units = static_cast<std::uint32_t>(coordinates / kSumUnit);
    Shares of{packed.shares, units / packed.shares, units % packed.shares, 0};
    of.blocks = warps_of((of.each + 1) * (kSumUnit / kTile));
    return device::launch<unpack_shares>(units ? of.shares * of.blocks : 0, device::kThreads, 0, s, packed.bytes,
                                         packed.stride, of, static_cast<std::uint32_t>(packed.width), most, sums,
                                         largest);
  }
  int load() const override {
    const Stream s = device::only_load();
    const SumChunk none{};
    for (const int e :
         {norms(none, nullptr, s), encode(none, nullptr, 0, nullptr, s), decode(none, nullptr, nullptr, 1, s),
          integers(nullptr, 0, 1, nullptr, s), integers(nullptr, 0, 2, nullptr, s), add({}, 0, 8, nullptr, s),
          unpack({nullptr, 0, 1, 8}, 0, 0, nullptr, nullptr, s)})
      if (e != 0) return e;
    return 0;
  }

 private:
  static std::uint32_t blocks_of(const SumChunk& chunk) { return static_cast<std::uint32_t>(chunk.pieces.size()); }
  static std::uint32_t warps_of(std::uint64_t tiles) {
    return static_cast<std::uint32_t>((tiles + device::kWarps - 1) / device::kWarps);
  }
  Encoder device_;
};

}  // namespace crimp::thc
