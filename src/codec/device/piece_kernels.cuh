// What the kernels of all codecs share: one block encodes or decodes one piece, of any of the jobs of a launch. A codec
// supplies a struct Device, passed to the kernels by value:
//
//   struct Device : device::PieceDevice {                        // defaults of the constants
//     struct Shared { ... };                                     // its own shared memory; nothing in it is initialised
//     __device__ std::uint32_t encode(const Piece&, float* a, std::uint8_t* out, Shared&) const;
//     __device__ bool decode_add(const Piece&, const std::uint8_t* in, std::uint32_t bytes, float* acc, Shared&) const;
//   };
//
// All threads of a block call them, after a barrier, and a barrier follows; a and acc are the piece in shared memory.
// encode writes at most piece_bound bytes to `out` (device memory, any alignment), returns their number in every thread
// and, where piece.keep, leaves a - decode(a) in a (else a may be destroyed). decode_add returns the same in every
// thread, reads nothing outside [in, in + bytes), and acc may be anything after false. Host functions and their order
// of operations are the model: bits must be the same.
//
// A codec that selects (kSelects) also has
//     std::size_t select_bytes(const ChunkTable&) const;         // of device memory, a multiple of 256
//     int select(const Source&, const RandomCounter&, Selection* one_per_group, void* scratch, Stream) const;     //
//     enqueues it
//     template <class Work>
//     __device__ void for_sent(const Shared&, std::uint32_t count, Work&&) const;  // work(i) for what encode selected
// One that adds all payloads of a piece in a call of its own (kAddsAll) also has
//     template <class Payloads>
//     __device__ void add_all(const Piece&, const Payloads&, float* acc, Shared&) const;
// One that also begins and ends them itself (kDecodesAll), in blocks of kDecodeThreads, whose shared memory has no
// piece,
//     template <class Payloads, class To>
//     __device__ void decode_all(const Piece&, const Payloads&, const To& out, bool accumulate, int voters,
//                                DecodeShared&) const;
// A codec of fixed size that decodes every element on its own sums in registers (sums.cuh). None of these needs a
// decode_add.
#pragma once
#include "codec/device/pack_kernels.cuh"
#include "codec/device/piece_memory.cuh"
#include "codec/device/register_sums.cuh"

namespace crimp::device {

template <class Device>
struct EncodeShared {
  alignas(16) float a[kPieceElements];
  typename Device::Shared own;
};
template <class Device>
struct SumsShared {
  typename Device::DecodeShared own;
};
template <class Device>
struct DecodeShared {
  using Type = EncodeShared<Device>;
};
template <class Device>
requires(Device::kInRegisters || Device::kDecodesAll) struct DecodeShared<Device> {
  using Type = SumsShared<Device>;
};

template <class Device>
__host__ __device__ constexpr std::uint32_t encode_blocks(bool other) {
  const std::uint32_t blocks = sizeof(EncodeShared<Device>) <= 56 << 10 ? Device::kEncodeBlocks : 3;
  return other && Device::kOtherBlocks < blocks ? Device::kOtherBlocks : blocks;
}

// The order in which blocks take the pieces. Of two passes over all of them the second one goes back: it begins where
// the first one has ended, with what the L2 cache still has.
struct Order {
  std::uint32_t first = 0, step = 1;
  static Order back(const ChunkTable& t) { return {t.piece_count - 1, ~0u}; }
  __device__ std::uint32_t piece() const { return first + step * blockIdx.x; }
};
__device__ inline std::uint32_t piece_of_block(bool back) { return back ? gridDim.x - 1 - blockIdx.x : blockIdx.x; }

// other: of values that are not float32, without momentum, whose pointers and values would spill.
template <class Device, bool other>
__global__ void __launch_bounds__(kThreads, encode_blocks<Device>(other))
    encode_pieces(Source source, RandomCounter counter, const Selection* selections, Device device, std::uint8_t* slots,
                  std::uint64_t* body_bytes) {
  auto& shared = shared_memory<EncodeShared<Device>>();
  if constexpr (other) {  // before anything else takes registers
    const PieceEntry& entry = source.table.pieces[piece_of_block(Device::kSelects)];
    (source.values + entry.offset).load_piece(entry.count, shared.a);
    __syncthreads();
  }
  const PieceEntry entry = source.table.pieces[piece_of_block(Device::kSelects)];
  GroupEntry at = source.table.groups[entry.group];
  const std::uint64_t in_group = entry.offset - at.offset;
  const auto move = [&](auto*& p) { p = global(p ? p + in_group : nullptr); };
  move(at.in);
  move(at.out);
  move(at.momentum_in);
  move(at.momentum_out);
  const Entry kind = entry_of(source.policy, at);
  bool quads = aligned16(at.in, at.out, at.momentum_in, at.momentum_out);
  if constexpr (other) {
    with_entry(kind, [&](auto constant) {
      if constexpr (constant != Entry::corrected)
        add_memory<constant, Device::kFetched>(source.policy, at, entry.count, quads, shared.a);
    });
  } else {
    const float* values = static_cast<const float*>(source.values.at) + entry.offset;
    quads = quads && aligned16(values);
    with_entry(kind, [&](auto constant) {
      load_piece<constant, Device::kFetched, Device::kLoadsWhole>(source.policy, values, at, entry.count, quads,
                                                                  shared.a);
    });
  }
  Piece piece{entry.count, at.out != nullptr && kind != Entry::averaged, counter, {}, in_group};
  piece.counter.element += entry.offset;
  if constexpr (Device::kSelects) piece.selection = selections[entry.group];
  __syncthreads();
  std::uint8_t* const to = (Device::kFixedSize ? global(source.table.jobs[entry.job].body) : slots) + entry.slot;
  const std::uint32_t bytes = device.encode(piece, shared.a, to, shared.own);
  __syncthreads();
  if (piece.keep) {
    if constexpr (!other)
      if (kind == Entry::corrected) {
        if constexpr (Device::kSelects) {
          mask_sent(device, shared.own, shared.a, entry.count, quads, at.in, at.momentum_out);
          __syncthreads();
        } else {
          mask_momentum(shared.a, entry.count, quads, at.in, at.momentum_out);
        }
      }
    store_left(shared.a, entry.count, quads, at.out);
  }
  if constexpr (Device::kFixedSize) {
    if (entry.in_job + 1 == source.table.jobs[entry.job].pieces) {  // the last piece ends the body
      const std::uint64_t used = entry.slot + bytes,
                          padded = (used + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
      if (threadIdx.x < padded - used) to[bytes + threadIdx.x] = 0;
      if (threadIdx.x == 0) body_bytes[entry.job] = padded;
    }
  } else {
    note_length(source.table, piece_of_block(Device::kSelects), bytes);
  }
}

// Where whole pieces have their own way, sm_80 and other types than float32 may need more than 40 registers for it:
// two, whatever kDecodeBlocks says.
template <class Device>
__host__ __device__ constexpr std::uint32_t decode_blocks(bool other) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if (Device::kWhole) return 2;
#endif
  if (other && Device::kWhole) return 2;
  return blocks_with(sizeof(typename DecodeShared<Device>::Type), Device::kDecodeBlocks);
}

// other: to what is not float32, which nothing is added to.
template <class Device, bool other>
__global__ void __launch_bounds__(Device::kDecodeThreads, decode_blocks<Device>(other))
    decode_pieces(ChunkTable table, DeviceBodies bodies, RandomCounter counter, Device device, Destination<other> whole,
                  bool accumulate, int voters, std::int32_t* bad) {
  auto& shared = shared_memory<typename DecodeShared<Device>::Type>();
  const PieceEntry entry = table.pieces[blockIdx.x];
  const auto out = whole + entry.offset;
  Piece piece{entry.count, false, {counter.element + entry.offset, counter.step, 0}, {}, 0};
  const std::uint64_t first = entry.job * static_cast<std::uint64_t>(bodies.count);  // of the job's bodies
  const Payloads<Device> payloads{table, bodies, device, bad, static_cast<std::uint32_t>(bodies.count)};
  if constexpr (Device::kInRegisters) {
    decode_in_registers(
        device, piece, bodies.count, [&](std::int64_t r) { return global(bodies.bodies[first + r]) + entry.slot; }, out,
        accumulate, shared.own, bad + entry.job);
  } else if constexpr (Device::kDecodesAll) {
    device.decode_all(piece, payloads, out, accumulate, voters, shared.own);
  } else {
    const bool quads = in_quads(out);
    for_elements(entry.count, quads, [&](auto n, std::uint32_t i) {
      Floats<n> begin{};
      if constexpr (!other)
        if (accumulate) begin = load<n>(out + i);
      store<n>(shared.a + i, begin);
    });
    if constexpr (Device::kAddsAll) {
      device.add_all(piece, payloads, shared.a, shared.own);
    } else {
      for (std::uint32_t r = 0; r < payloads.count; ++r) {
        const Body body = payloads[r];
        __syncthreads();
        if (!device.decode_add(piece, body.in, body.bytes, shared.a, shared.own) && threadIdx.x == 0)
          payloads.malformed(r);
      }
    }
    __syncthreads();
    if constexpr (Device::kAddsAll) {
      const PieceEntry again = table.pieces[blockIdx.x];
      const auto to = whole + again.offset;
      for_elements(again.count, in_quads(to), [&](auto n, std::uint32_t i) { put<n>(to, i, load<n>(shared.a + i)); });
    } else {
      for_elements(entry.count, quads, [&](auto n, std::uint32_t i) { put<n>(out, i, load<n>(shared.a + i)); });
    }
  }
}

template <class Device>
class PieceCodec final : public DeviceCodec {
 public:
  PieceCodec(const FeedbackPolicy& policy, const Device& device) : policy_(policy), device_(device) {}

  int load() const override {
    ChunkTable one{};
    one.piece_count = one.group_count = 1, one.job_count = 1;
    std::vector<std::uint8_t> scratch(scratch_bytes(one));  // to point into
    for (const Dtype type : {Dtype::f32, Dtype::f16}) {
      if (type == Dtype::f32 || converts())
        if (const int e = encode(one, {nullptr, type}, {}, nullptr, scratch.data(), only_load())) return e;
      if (const int e = decode_add(one, {}, {}, {nullptr, type}, false, 0, nullptr, only_load())) return e;
    }
    return 0;
  }

  std::size_t scratch_bytes(const ChunkTable& t) const override { return layout(t).bytes; }
  bool converts() const override { return !Device::kSelects && policy_.kind != FeedbackKind::momentum; }

  int encode(const ChunkTable& t, ConstValues values, const RandomCounter& counter, std::uint64_t* body_bytes,
             void* scratch, Stream s) const override {
    const Source source{t, In(values), policy_};
    const Layout l = layout(t);
    auto* base = static_cast<std::uint8_t*>(scratch);
    auto* selections = reinterpret_cast<Selection*>(base + l.selections);
    if (t.piece_count == 0) return 0;
    if (values.type != Dtype::f32 && !converts()) return cudaErrorInvalidValue;
    if constexpr (Device::kSelects)
      if (const int e = device_.select(source, counter, selections, base + l.select, s)) return e;
    std::uint8_t* slots = base + l.slots;
    const auto encode_all = [&](auto other) {
      return launch<encode_pieces<Device, other>>(t.piece_count, kThreads, sizeof(EncodeShared<Device>), s, source,
                                                  counter, selections, device_, slots, body_bytes);
    };
    int encoded = 0;
    if (values.type == Dtype::f32) encoded = encode_all(std::false_type());
    else if constexpr (!Device::kSelects) encoded = encode_all(std::true_type());
    if (encoded != 0) return encoded;
    if constexpr (Device::kFixedSize) return 0;
    constexpr auto pack_all =
        &pack_pieces<kPackThreads>;  // GCC 12 does not instantiate what is named as a template argument only
    const std::uint64_t run = div_up(t.piece_count, kPackBlocks);
    return launch<pack_all>(static_cast<std::uint32_t>(div_up(t.piece_count, run)), kPackThreads, sizeof(BlockScratch),
                            s, t, slots, body_bytes, run);
  }

  int decode_add(const ChunkTable& t, const DeviceBodies& bodies, const RandomCounter& counter, Values out,
                 bool accumulate, int voters, std::int32_t* bad, Stream s) const override {
    const auto decode_all = [&](auto other) {
      return launch<decode_pieces<Device, other>>(
          t.piece_count, Device::kDecodeThreads, sizeof(typename DecodeShared<Device>::Type), s, t, bodies, counter,
          device_, destination<other>(out), accumulate, voters ? voters : static_cast<int>(bodies.count), bad);
    };
    return out.type == Dtype::f32 ? decode_all(std::false_type()) : decode_all(std::true_type());
  }

 private:
  struct Layout {
    std::size_t selections, select, slots, bytes;
  };
  Layout layout(const ChunkTable& t) const {
    Layout l{};
    const auto take = [&](std::size_t n) {
      const std::size_t at = l.bytes;
      l.bytes += (n + 255) / 256 * 256;
      return at;
    };
    if constexpr (!Device::kFixedSize) l.slots = take(t.slots_bytes);
    if constexpr (Device::kSelects) {
      l.selections = take(t.group_count * sizeof(Selection));
      l.select = take(device_.select_bytes(t));
    }
    return l;
  }
  FeedbackPolicy policy_;
  Device device_;
};

template <class Device>
std::unique_ptr<DeviceCodec> piece_codec(const Codec& codec, const Device& device) {
  return std::make_unique<PieceCodec<Device>>(codec.feedback(), device);
}

}  // namespace crimp::device
