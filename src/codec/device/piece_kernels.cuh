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
//     __device__ void add_all(const Piece&, const Payloads&, float* acc, DecodeShared&) const;
// whose DecodeShared is Shared unless it names another (kOwnShared); one that also begins and ends them itself
// (kDecodesAll), whose shared memory has no piece,
//     template <class Payloads, class To>
//     __device__ void decode_all(const Piece&, const Payloads&, const To& out, bool accumulate, int voters,
//                                DecodeShared&) const;
// A codec of fixed size that decodes every element on its own sums in registers (sums.cuh). None of these needs a
// decode_add.
#pragma once
#include "codec/device/pack_kernels.cuh"
#include "codec/device/values.cuh"
#include "codec/device_codec.hpp"

namespace crimp::device {

struct PieceDevice {
  static constexpr bool kFixedSize = true, kSelects = false, kInRegisters = false;
  static constexpr bool kAddsAll = false, kOwnShared = false, kDecodesAll = false;
  // Blocks on a multiprocessor that registers are for: 4, 3 where 32 spill. sm_80 has shared memory for three encoding.
  static constexpr std::uint32_t kEncodeBlocks = 4, kDecodeBlocks = 4;
  static constexpr std::uint32_t kOtherBlocks = 4;  // at most, encoding values that are not float32
  static constexpr int kFetched = 3;                // vectors of memory that a thread has on their way
  static constexpr int kPayloads = 4;               // of how many a thread that adds in registers has a slot on its way
  // Whole pieces are decoded in another way (sums.cuh), also to other types than float32: so many slots at once, with
  // so many payloads on their way, or with the next one while one is added.
  static constexpr bool kWhole = false, kAhead = false;
  static constexpr std::uint32_t kWholeSlots = 5;
  static constexpr int kWholePayloads = 1;
};

struct Piece {
  std::uint32_t count;
  bool keep;
  RandomCounter counter;
  Selection selection;
  std::uint64_t in_group;
};

// A piece of a payload.
struct Body {
  const std::uint8_t* in;
  std::uint32_t bytes;
};

// What all payloads have of the block's piece. In a kernel, whose arguments it reads again rather than keep what
// follows from them in registers.
template <class Device>
struct Payloads {
  const ChunkTable& table;
  const DeviceBodies& bodies;
  const Device& device;
  std::int32_t* bad;
  std::uint32_t count;

  __device__ Body operator[](std::uint32_t r) const {
    const PieceEntry& entry = global(table.pieces)[blockIdx.x];
    const std::uint64_t at = entry.job * static_cast<std::uint64_t>(bodies.count) + r;  // of the job's bodies
    const std::uint8_t* const body = global(bodies.bodies[at]);
    if constexpr (Device::kFixedSize) {
      return {body + entry.slot, device.bytes(entry.count)};
    } else {
      const std::uint64_t* const offsets = global(bodies.offsets[at]) + entry.in_job;
      return {body + offsets[0], static_cast<std::uint32_t>(offsets[1] - offsets[0])};
    }
  }
  __device__ void malformed(std::uint32_t r) const {
    atomicMin(bad + global(table.pieces)[blockIdx.x].job, static_cast<std::int32_t>(r));
  }
};

// What a group's elements are made of: values and memory. In a kernel.
struct Source {
  ChunkTable table;
  In values;  // of kernels that select: float32
  FeedbackPolicy policy;
  std::uint32_t end = 0;  // no padding in kernel arguments: the executor takes what looks like an address for a pointer
};

// How a group's memory enters: as Codec::encode_body does it. `added` where the memory is plain error feedback.
enum class Entry { values, added, decayed, averaged, corrected };
__device__ inline Entry entry_of(const FeedbackPolicy& policy, const GroupEntry& g) {
  if (!g.in) return Entry::values;
  if (policy.kind == FeedbackKind::average) return Entry::averaged;
  if (policy.kind == FeedbackKind::momentum && g.momentum_in) return Entry::corrected;
  return policy.kind == FeedbackKind::residual && policy.decay != 1.0f ? Entry::decayed : Entry::added;
}
// a of one element, and of memory `momentum` the new momentum in *u. src/codec/feedback.cpp has the same operations.
__device__ inline float element(Entry entry, const FeedbackPolicy& policy, float value, float in, float momentum_in,
                                float* u) {
  switch (entry) {
    case Entry::values: return value;
    case Entry::added: return value + in;
    case Entry::decayed: return value + policy.decay * in;
    case Entry::averaged: return policy.momentum * in + (1.0f - policy.momentum) * value;
    case Entry::corrected: *u = policy.momentum * momentum_in + value; return in + *u;
  }
  return value;
}
// work(constant) with the entry as a constant: for loops that would else ask for every element.
template <class Work>
__device__ inline void with_entry(Entry entry, Work&& work) {
  switch (entry) {
    case Entry::values: return work(std::integral_constant<Entry, Entry::values>());
    case Entry::added: return work(std::integral_constant<Entry, Entry::added>());
    case Entry::decayed: return work(std::integral_constant<Entry, Entry::decayed>());
    case Entry::averaged: return work(std::integral_constant<Entry, Entry::averaged>());
    case Entry::corrected: return work(std::integral_constant<Entry, Entry::corrected>());
  }
}
// The elements of a group from element `at` on, as they will be encoded, for kernels that select.
template <Entry entry>
struct Elements {
  const FeedbackPolicy& policy;
  const float *values, *in, *momentum;  // the last two where the entry has them
  __device__ Elements(const Source& s, const GroupEntry& g, std::uint64_t at)
      : policy(s.policy), values(static_cast<const float*>(s.values.at) + g.offset + at),
        in(entry == Entry::values ? nullptr : global(g.in + at)),
        momentum(entry == Entry::corrected ? global(g.momentum_in + at) : nullptr) {}

  struct Parts {  // of up to four elements
    Floats<4> value, in, momentum;
    __device__ float a(const FeedbackPolicy& policy, int k) const {
      float u;
      return element(entry, policy, value.v[k], entry == Entry::values ? 0.0f : in.v[k],
                     entry == Entry::corrected ? momentum.v[k] : 0.0f, &u);
    }
  };
  template <int n>
  __device__ void load_parts(Parts& to, std::size_t i) const {
    load_front<n>(to.value, values + i);
    if constexpr (entry != Entry::values) load_front<n>(to.in, in + i);
    if constexpr (entry == Entry::corrected) load_front<n>(to.momentum, momentum + i);
  }
  __device__ float operator[](std::size_t i) const {
    Parts parts;
    load_parts<1>(parts, i);
    return parts.a(policy, 0);
  }
  __device__ bool aligned() const { return aligned16(values, in, momentum); }
};

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
struct AllShared {
  alignas(16) float a[kPieceElements];
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
requires Device::kOwnShared struct DecodeShared<Device> {
  using Type = AllShared<Device>;
};

// Adds up a piece in registers, slot by slot, what some payloads have for some elements on its way at once; body(r) is
// where the piece begins in rank r's. No barrier.
template <class To, class Device, class Body>
__device__ inline void decode_slots(const Device& device, const Piece& piece, std::int64_t count, Body&& body,
                                    const To& out, bool accumulate, typename Device::DecodeShared& own,
                                    std::int32_t* bad) {
  constexpr int at_once = Device::kPayloads;
#pragma unroll 1
  for (std::uint32_t j = 0; j < Device::kSlots; ++j) {
    if (j > 0 && !Device::begins(j, piece.count)) break;
    float sums[Device::kEach] = {};
    if constexpr (std::is_pointer_v<To>)
      if (accumulate) Device::load_slot(out, piece.count, j, sums);
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += at_once) {
      typename Device::Head head[at_once] = {};
      typename Device::Slot slot[at_once] = {};
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) {
          const std::uint8_t* const in = body(r + b);
          head[b] = device.head(piece, in);
          slot[b] = device.fetch(piece, in, j);
        }
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) {
          const bool legal = device.legal(piece, head[b]);
          if (!device.add(piece, head[b], slot[b], j, sums, own) || !legal)
            atomicMin(bad, static_cast<std::int32_t>(r + b));
        }
    }
    Device::store_slot(out, piece.count, j, sums);
  }
}

// Likewise a whole piece, of which a thread has some slots at once, from slot `first` on: addresses and what is not of
// elements are then made once for them and a payload, or are constants.
template <std::uint32_t first, class To, class Device, class Whole, class Body>
__device__ inline void decode_whole(const Device& device, const Whole& whole, std::int64_t count, Body&& body,
                                    const To& out, bool accumulate, typename Device::DecodeShared& own,
                                    std::int32_t* bad) {
  constexpr std::uint32_t n =
      first + Device::kWholeSlots < Device::kSlots ? Device::kWholeSlots : Device::kSlots - first;
  struct Payload {
    typename Whole::Head head;
    typename Whole::Slot slots[n];
  };
  float sums[n][Device::kEach] = {};
  if constexpr (std::is_pointer_v<To>)
    if (accumulate) {
#pragma unroll
      for (std::uint32_t j = 0; j < n; ++j) Device::load_whole(out, first + j, sums[j]);
    }
  const auto fetch = [&](std::int64_t r, Payload& payload) {
    if (r >= count) return;
    const std::uint8_t* const in = body(r);
    payload.head = whole.head(in);
#pragma unroll
    for (std::uint32_t j = 0; j < n; ++j) payload.slots[j] = whole.fetch(in, first + j);
  };
  const auto add = [&](std::int64_t r, Payload& payload) {
    bool legal = whole.open(device, payload.head);
#pragma unroll
    for (std::uint32_t j = 0; j < n; ++j)
      legal = whole.add(payload.head, payload.slots[j], first + j, sums[j], own) && legal;
    if (!legal) atomicMin(bad, static_cast<std::int32_t>(r));
  };
  if constexpr (Device::kAhead && std::is_pointer_v<To>) {
    Payload even = {}, odd = {};  // as GCC has it they might be used without
    fetch(0, even);
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += 2) {
      fetch(r + 1, odd);
      add(r, even);
      if (r + 1 == count) break;
      fetch(r + 2, even);
      add(r + 1, odd);
    }
  } else {
    constexpr int at_once = std::is_pointer_v<To> ? Device::kWholePayloads : 1;
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += at_once) {
      Payload payloads[at_once] = {};
#pragma unroll
      for (int b = 0; b < at_once; ++b) fetch(r + b, payloads[b]);
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) add(r + b, payloads[b]);
    }
  }
#pragma unroll
  for (std::uint32_t j = 0; j < n; ++j) Device::store_whole(out, first + j, sums[j]);
  if constexpr (first + n < Device::kSlots)
    decode_whole<first + n>(device, whole, count, body, out, accumulate, own, bad);
}

template <class To, class Device, class Body>
__device__ inline void decode_in_registers(const Device& device, const Piece& piece, std::int64_t count, Body&& body,
                                           const To& out, bool accumulate, typename Device::DecodeShared& own,
                                           std::int32_t* bad) {
  device.prepare(own);
  if constexpr (Device::kWhole) {
    std::uintptr_t addresses = 0;
    for (std::int64_t r = 0; r < count; ++r) addresses |= reinterpret_cast<std::uintptr_t>(body(r));
    if (piece.count == kPieceElements && addresses % sizeof(std::uint32_t) == 0 && in_quads(out) &&
        device.with_whole(
            [&](const auto& whole) { decode_whole<0>(device, whole, count, body, out, accumulate, own, bad); }))
      return;
  }
  decode_slots(device, piece, count, body, out, accumulate, own, bad);
}

inline constexpr int kQuads = kPieceElements / 4 / kThreads;  // of a thread, in a whole piece

// Adds its memory to a piece in shared memory, which may still be on its way there, and stores what of the memory is
// final with that. Pointers are to the piece's first element.
template <Entry entry, int most>
__device__ inline void add_memory(const FeedbackPolicy& policy, const GroupEntry& at, std::uint32_t count, bool quads,
                                  float* a) {
  if constexpr (entry == Entry::values) {
    wait_async();
  } else {
    constexpr int at_once = entry == Entry::corrected ? 1 : most;
    Floats<4> in[at_once], momentum[at_once];
    in_batches<at_once>(
        count, quads,
        [&](auto n, int j, std::size_t i) {
          load_front<n>(in[j], at.in + i);
          if constexpr (entry == Entry::corrected) load_front<n>(momentum[j], at.momentum_in + i);
        },
        [&](auto n, int j, std::size_t i) {
          if (j == 0) wait_async();
          Floats<n> x = load<n>(a + i), u;
#pragma unroll
          for (int k = 0; k < n; ++k)
            x.v[k] = element(entry, policy, x.v[k], in[j].v[k], entry == Entry::corrected ? momentum[j].v[k] : 0.0f,
                             &u.v[k]);
          if constexpr (entry == Entry::averaged) store<n>(at.out + i, x);
          if constexpr (entry == Entry::corrected) store<n>(at.momentum_out + i, u);
          store<n>(a + i, x);
        });
  }
}
// Likewise of the values, with their memory.
template <Entry entry, int most>
__device__ inline void load_piece(const FeedbackPolicy& policy, const float* values, const GroupEntry& at,
                                  std::uint32_t count, bool quads, float* a) {
  in_batches<kQuads>(
      count, quads, [&](auto n, int, std::size_t i) { copy_async<n>(a + i, values + i); },
      [](auto, int, std::size_t) {});
  add_memory<entry, most>(policy, at, count, quads, a);
}

// Stores what encoding has left of a piece.
__device__ inline void store_left(const float* a, std::uint32_t count, bool quads, float* out) {
  Floats<4> left[kQuads];
  in_batches<kQuads>(
      count, quads, [&](auto n, int j, std::size_t i) { load_front<n>(left[j], a + i); },
      [&](auto n, int j, std::size_t i) { store_front<n>(out + i, left[j]); });
}
// What was sent loses its momentum.
__device__ inline void mask_momentum(const float* a, std::uint32_t count, bool quads, const float* in,
                                     float* momentum) {
  Floats<4> r[2], u[2];
  in_batches<2>(
      count, quads,
      [&](auto n, int j, std::size_t i) {
        load_front<n>(r[j], in + i);
        load_front<n>(u[j], momentum + i);
      },
      [&](auto n, int j, std::size_t i) {
        const Floats<n> left = load<n>(a + i);
        Floats<n> to;
#pragma unroll
        for (int k = 0; k < n; ++k) to.v[k] = left.v[k] == r[j].v[k] + u[j].v[k] ? u[j].v[k] : 0.0f;
        store<n>(momentum + i, to);
      });
}

// Likewise of a codec that selects: elements that were not sent have left == r + u and need nothing, unless that is not
// a number. Other threads may have had them in between: a barrier is due before the residual is stored, which may be
// where it was loaded from.
template <class Device>
__device__ inline void mask_sent(const Device& device, const typename Device::Shared& own, const float* a,
                                 std::uint32_t count, bool quads, const float* in, float* momentum) {
  device.for_sent(own, count, [&](std::uint32_t i) {
    if (!(a[i] == in[i] + momentum[i])) momentum[i] = 0.0f;
  });
  for_elements(count, quads, [&](auto n, std::uint32_t i) {
    const Floats<n> left = load<n>(a + i);
#pragma unroll
    for (int k = 0; k < n; ++k)
      if (left.v[k] != left.v[k]) momentum[i + k] = 0.0f;
  });
}

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
      load_piece<constant, Device::kFetched>(source.policy, values, at, entry.count, quads, shared.a);
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
__global__ void __launch_bounds__(kThreads, decode_blocks<Device>(other))
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
      return launch<decode_pieces<Device, other>>(t.piece_count, kThreads, sizeof(typename DecodeShared<Device>::Type),
                                                  s, t, bodies, counter, device_, destination<other>(out), accumulate,
                                                  voters ? voters : static_cast<int>(bodies.count), bad);
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
