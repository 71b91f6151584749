// Payload bodies: the framing shared by all codecs (src/codec/WIRE_FORMAT.md, section 3).
//
//   body = piece lengths (uint16 per piece, where the codec is not fixed-size), zeros up to a multiple of 64
//          pieces, back to back, zeros up to a multiple of 64
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.hpp"

namespace crimp {

class Workers;

// Consecutive elements of a chunk that belong to one tensor. Equal on all ranks.
struct Group {
  std::uint64_t offset, count;
};

// How a chunk is cut. Groups and gaps tile [0, count) in order; each group is cut into pieces of kPieceElements, the
// last one shorter.
class ChunkPartition {
 public:
  struct Piece {
    std::uint64_t offset;
    std::uint32_t count, group;
  };
  void clear();
  void add_group(std::uint64_t count);                    // appended behind the last one; count 0 adds nothing
  void add_gap(std::uint64_t count) { count_ += count; }  // elements that are neither read nor written
  std::uint64_t count() const { return count_; }
  std::span<const Group> groups() const { return groups_; }
  std::span<const Piece> pieces() const { return pieces_; }
  std::size_t first_piece(std::size_t group) const { return first_piece_[group]; }
  // Bytes from the body's start to the first piece, and the most bytes a body can have. Both multiples of
  // kPayloadAlign.
  std::size_t prefix_bytes(const Codec&) const;
  std::size_t body_bound(const Codec&) const;

 private:
  std::uint64_t count_ = 0;
  std::vector<Group> groups_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> first_piece_;
};

// The memory of one group; element 0 of every pointer is the group's first element. Null: none. Out may equal in.
struct FeedbackView {
  const float* in = nullptr;  // the residual; of memory `average` the averages
  float* out = nullptr;
  const float* momentum_in =
      nullptr;  // the second array of memory `momentum`; null beside `in`: of sums, which have a plain residual
  float* momentum_out = nullptr;
  const float* state_in = nullptr;  // of a codec that keeps one
  float* state_out = nullptr;
  float gain = 1.0f;  // values are multiplied by it first, where the memory is not fused(): gamma, but 1 where an owner
                      // encodes sums
  std::uint32_t turn = 0;  // Codec::select_in_turn
};
// Of the group that begins with element `first` of a tensor of `count`, in place. memory: the tensor's, `arrays` of
// them and states behind; null: none.
FeedbackView feedback_of(const Codec&, float* memory, int arrays, std::uint64_t count, std::uint64_t first);

// Called between pieces on the calling thread, so that an exchange under way keeps moving. May be empty. Must not
// throw.
using Progress = std::function<void()>;

// Floats of scratch that encode_body needs.
inline std::uint64_t scratch_elements(const Codec& codec, std::uint64_t count, bool feedback) {
  return !feedback || codec.feedback().fused() ? 0 : count;
}
// Encodes partition.count() values; feedback has one entry per group or is empty. `counter` is that of the chunk's
// first element. `body` has room for body_bound(), `scratch` for scratch_elements(). Returns the body's bytes.
std::size_t encode_body(const Codec&, const ChunkPartition&, const float* values,
                        std::span<const FeedbackView> feedback, const RandomCounter& counter, std::uint8_t* body,
                        float* scratch, Workers&, const Progress& = {});

// A received body, checked against partition and codec: sizes, lengths, padding. The bytes stay the caller's.
class BodyView {
 public:
  // Empty on success, else what is wrong with the bytes.
  std::string open(const Codec&, const ChunkPartition&, std::span<const std::uint8_t> body);
  // The same of a body that the host cannot read: `prefix` and `last` are copies of its first prefix_bytes() and of its
  // last kPayloadAlign.
  std::string open(const Codec&, const ChunkPartition&, std::span<const std::uint8_t> body, const std::uint8_t* prefix,
                   const std::uint8_t* last);
  // Bytes [offsets()[p], offsets()[p + 1]) of the body are piece p.
  std::span<const std::uint64_t> offsets() const { return offsets_; }
  std::span<const std::uint8_t> body() const { return body_; }
  std::span<const std::uint8_t> piece(std::size_t index) const {
    return body_.subspan(offsets_[index], offsets_[index + 1] - offsets_[index]);
  }

 private:
  std::span<const std::uint8_t> body_;
  std::vector<std::uint64_t> offsets_;
};

// out[i] = (accumulate ? out[i] : 0) + bodies[0][i] + bodies[1][i] + ..., added in exactly this order for every
// element, whatever the number of threads; then, unless it accumulates, the codec's finish_piece for so many voters (0:
// one for each body). streamed: rather past the caches (memory/streamed.hpp), where it does not accumulate. Returns the
// index of the first body with malformed pieces, or -1.
int decode_add(const Codec&, const ChunkPartition&, std::span<const BodyView> bodies, const RandomCounter& counter,
               float* out, bool accumulate, Workers&, const Progress& = {}, int voters = 0, bool streamed = false);

}  // namespace crimp
