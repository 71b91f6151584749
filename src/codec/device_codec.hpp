// Codecs in device memory: the same bytes and the same decoded bits as encode_body and decode_add (codec/payload.hpp),
// chunk by chunk on a stream.
//
// No CUDA header is needed to call one. Pointers are to device memory unless said otherwise. Everything is enqueued on
// the stream: nothing waits, nothing allocates, and what is pointed to must stay until the stream has come past it.
// Functions return 0 or the CUDA error of a launch. Threading: a DeviceCodec is immutable; calls from several threads
// are as safe as their buffers are apart.
#pragma once
#include <climits>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "codec/payload.hpp"

struct CUstream_st;

namespace crimp {

using Stream = CUstream_st*;  // a cudaStream_t

struct PieceEntry {
  std::uint64_t offset,
      slot;  // slot: from the first piece's slot; for fixed-size codecs where its bytes are in the body
  std::uint32_t count, group;
};
// As Feedback, for the group [offset, offset + count) of the chunk. Element 0 of every pointer is the group's first.
struct GroupEntry {
  std::uint64_t offset, count;
  const float* in;
  float* out;
  const float* momentum_in;
  float* momentum_out;
  std::uint32_t first_piece, pieces;
};
// A ChunkPartition in device memory. The arrays are the caller's; the numbers are read on the host.
struct ChunkTable {
  const PieceEntry* pieces;
  const GroupEntry* groups;
  std::uint32_t piece_count, group_count;
  std::uint64_t count, prefix_bytes, slots_bytes;
};
struct DeviceBodies {
  const std::uint8_t* const* bodies;
  const std::uint64_t* const* offsets;  // of each body: where its pieces begin in it, and where the last one ends. Null
                                        // where the codec is of fixed size
  std::int64_t count;                   // as wide as a pointer: padding of kernel arguments holds whatever was there
};

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  // Scratch memory for one encode, aligned to 256 bytes; 0: none.
  virtual std::size_t scratch_bytes(const ChunkTable&) const = 0;
  // `values` is the chunk's first element, `counter` its counter. `body` is aligned to 16 bytes and has room for
  // body_bound(); *body_bytes receives the bytes used.
  virtual int encode(const ChunkTable&, const float* values, const RandomCounter& counter, std::uint8_t* body,
                     std::uint64_t* body_bytes, void* scratch, Stream) const = 0;
  // As decode_add. Lengths and padding are not checked here (BodyView::open, or the caller). *bad, INT_MAX before,
  // receives the lowest index of a body with malformed pieces; `out` is then not a sum. voters: 0: one for each body.
  virtual int decode_add(const ChunkTable&, const DeviceBodies&, const RandomCounter& counter, float* out,
                         bool accumulate, int voters, std::int32_t* bad, Stream) const = 0;
};

// Null where the codec has no kernels in this build.
std::unique_ptr<DeviceCodec> make_device_codec(const Codec&);

// Host arrays of a ChunkPartition, to be copied into device memory. Group pointers are null; feedback has one entry per
// group or is empty.
struct ChunkArrays {
  std::vector<PieceEntry> pieces;
  std::vector<GroupEntry> groups;
  ChunkTable table;  // without its pointers
};
inline ChunkArrays chunk_arrays(const Codec& codec, const ChunkPartition& partition,
                                std::span<const FeedbackView> feedback = {}) {
  ChunkArrays arrays;
  std::uint64_t slot = 0;
  for (const ChunkPartition::Piece& p : partition.pieces()) {
    arrays.pieces.push_back({p.offset, slot, p.count, p.group});
    const std::size_t bound = codec.piece_bound(p.count);
    slot += codec.traits().fixed_size ? bound : round_up(bound, 16);
  }
  for (std::size_t g = 0; g < partition.groups().size(); ++g) {
    const Group& group = partition.groups()[g];
    const FeedbackView memory = feedback.empty() ? FeedbackView{} : feedback[g];
    arrays.groups.push_back({group.offset, group.count, memory.in, memory.out, memory.momentum_in, memory.momentum_out,
                             static_cast<std::uint32_t>(partition.first_piece(g)),
                             static_cast<std::uint32_t>(div_up(group.count, kPieceElements))});
  }
  arrays.table = {nullptr,
                  nullptr,
                  static_cast<std::uint32_t>(arrays.pieces.size()),
                  static_cast<std::uint32_t>(arrays.groups.size()),
                  partition.count(),
                  partition.prefix_bytes(codec),
                  slot};
  return arrays;
}

}  // namespace crimp
