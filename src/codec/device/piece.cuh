// A piece in a kernel: what a codec says of itself, what elements are made of, and what all payloads have of it.
#pragma once
#include "codec/device/values.cuh"
#include "codec/device_codec.hpp"

namespace crimp::device {

inline constexpr int kQuads = kPieceElements / 4 / kThreads;  // of a thread, in a whole piece

struct PieceDevice {
  static constexpr bool kFixedSize = true, kSelects = false, kInRegisters = false;
  static constexpr bool kAddsAll = false, kDecodesAll = false;
  // Blocks on a multiprocessor that registers are for: 4, 3 where 32 spill. sm_80 has shared memory for three encoding.
  static constexpr std::uint32_t kEncodeBlocks = 4, kDecodeBlocks = 4;
  static constexpr std::uint32_t kDecodeThreads = kThreads;  // another number only with kDecodesAll
  static constexpr std::uint32_t kOtherBlocks = 4;           // at most, encoding values that are not float32
  static constexpr int kFetched = 3;                         // vectors of memory that a thread has on their way
  static constexpr bool kLoadsWhole = false;  // values of whole pieces by fewer instructions, but more registers
  static constexpr int kPayloads = 4;         // of how many a thread that adds in registers has a slot on its way
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

}  // namespace crimp::device
