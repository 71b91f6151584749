// Codecs in device memory: the same bytes and the same decoded bits as encode_body and decode_add (codec/payload.hpp),
// some chunks or shards at a time, on a stream.
//
// No CUDA header is needed to call one. Pointers are to device memory unless said otherwise. Everything is enqueued on
// the stream: nothing waits, nothing allocates, and what is pointed to must stay until the stream has come past it.
// Functions return 0 or the CUDA error of a launch. Threading: a DeviceCodec is immutable; calls from several threads
// are as safe as their buffers are apart.
#pragma once
#include <climits>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "codec/payload.hpp"
#include "core/values.hpp"

struct CUstream_st;

namespace crimp {

using Stream = CUstream_st*;  // a cudaStream_t

// Several bodies of one codec are encoded, or decoded to several places, by the same launches: its jobs. Offsets are
// elements from the launch's values, which its counter counts, too.
struct PieceEntry {
  std::uint64_t offset, slot;  // slot: for fixed-size codecs where its bytes are in the job's body, else in the scratch
                               // memory of all jobs
  std::uint32_t count, group, job, in_job;  // in_job: which of the job's pieces
};
// As Feedback, for the group [offset, offset + count). Element 0 of every pointer is the group's first.
struct GroupEntry {
  std::uint64_t offset, count;
  const float* in;
  float* out;
  const float* momentum_in;
  float* momentum_out;
  std::uint32_t first_piece, pieces;
  const float* state_in;
  float* state_out;
};
struct JobEntry {
  std::uint8_t* body;  // to be encoded: aligned to 16 bytes, with room for body_bound()
  std::uint64_t prefix_bytes;
  std::uint32_t first_piece, pieces;
};
// ChunkPartitions in device memory, one for each job. The arrays are the caller's; the numbers are read on the host.
struct ChunkTable {
  const PieceEntry* pieces;
  const GroupEntry* groups;
  const JobEntry* jobs;
  std::uint32_t piece_count, group_count;
  std::uint64_t job_count, slots_bytes;  // as wide as a pointer: padding of kernel arguments holds whatever was there
};
// As many for each job, one job's behind another's.
struct DeviceBodies {
  const std::uint8_t* const* bodies;
  const std::uint64_t* const* offsets;  // of each body: where its pieces begin in it, and where the last one ends. Null
                                        // where the codec is of fixed size
  std::int64_t count;                   // of one job; as wide as a pointer
};

class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  // Loads all kernels of what follows into the current context: before the first of them on a device, so that no memory
  // for code is found missing there.
  virtual int load() const = 0;
  // Scratch memory for one encode, aligned to 256 bytes; 0: none.
  virtual std::size_t scratch_bytes(const ChunkTable&) const = 0;
  // Whether values of other types than float32 can be encoded: not where codecs select, which read their values some
  // times over, nor where they keep a momentum.
  virtual bool converts() const = 0;
  // Each job to its body; body_bytes, one for each job and 0 before, receive the
  // bytes used.
  virtual int encode(const ChunkTable&, ConstValues values, const RandomCounter& counter, std::uint64_t* body_bytes,
                     void* scratch, Stream) const = 0;
  // As decode_add, each job its bodies. Lengths and padding are not checked here (BodyView::open, or the caller). bad,
  // one for each job and INT_MAX before, receive the lowest index of a body with malformed pieces; what is in the job's
  // place is then not a sum. voters: 0: one for each body. accumulate: `out` is of float32.
  virtual int decode_add(const ChunkTable&, const DeviceBodies&, const RandomCounter& counter, Values out,
                         bool accumulate, int voters, std::int32_t* bad, Stream) const = 0;
};

// Null where the codec has no kernels in this build.
std::unique_ptr<DeviceCodec> make_device_codec(const Codec&);

// What is to be encoded or decoded as one job. `at`: its first element's offset.
struct DeviceJob {
  const ChunkPartition& partition;
  std::uint64_t at = 0;
  std::span<const FeedbackView> feedback = {};  // one for each group, or empty
  std::uint8_t* body = nullptr;
};
// Host arrays of jobs, to be copied into device memory.
struct ChunkArrays {
  std::vector<PieceEntry> pieces;
  std::vector<GroupEntry> groups;
  std::vector<JobEntry> jobs;
  ChunkTable table{};  // without its pointers
  ChunkArrays() = default;
  ChunkArrays(const Codec& codec, const DeviceJob& job) { add(codec, job); }

  void add(const Codec& codec, const DeviceJob& job) {
    const bool fixed = codec.traits().fixed_size;
    const auto index = static_cast<std::uint32_t>(jobs.size());
    const auto first_piece = static_cast<std::uint32_t>(pieces.size()),
               first_group = static_cast<std::uint32_t>(groups.size());
    std::uint64_t in_body = 0;
    for (const ChunkPartition::Piece& p : job.partition.pieces()) {
      pieces.push_back({job.at + p.offset, fixed ? in_body : table.slots_bytes, p.count, first_group + p.group, index,
                        static_cast<std::uint32_t>(pieces.size()) - first_piece});
      const std::size_t bound = codec.piece_bound(p.count);
      in_body += bound;
      if (!fixed) table.slots_bytes += round_up(bound, 16);
    }
    for (std::size_t g = 0; g < job.partition.groups().size(); ++g) {
      const Group& group = job.partition.groups()[g];
      const FeedbackView memory = job.feedback.empty() ? FeedbackView{} : job.feedback[g];
      groups.push_back({job.at + group.offset, group.count, memory.in, memory.out, memory.momentum_in,
                        memory.momentum_out, first_piece + static_cast<std::uint32_t>(job.partition.first_piece(g)),
                        static_cast<std::uint32_t>(div_up(group.count, kPieceElements)), memory.state_in,
                        memory.state_out});
    }
    jobs.push_back({job.body, job.partition.prefix_bytes(codec), first_piece,
                    static_cast<std::uint32_t>(pieces.size()) - first_piece});
    table.piece_count = static_cast<std::uint32_t>(pieces.size());
    table.group_count = static_cast<std::uint32_t>(groups.size());
    table.job_count = jobs.size();
  }
};

}  // namespace crimp
