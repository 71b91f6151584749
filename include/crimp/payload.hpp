// Payload bodies: the framing shared by all codecs (src/codec/WIRE_FORMAT.md, section 3).
//
//   body = scales (float32 per group, where the codec has a scale)
//          piece lengths (uint16 per piece, where the codec is not fixed-size), zeros up to a multiple of 64
//          pieces, back to back, zeros up to a multiple of 64
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "crimp/codec.hpp"

namespace crimp {

class Workers;

// Consecutive elements of a chunk that share one scale. Equal on all ranks.
struct Group {
  std::uint64_t offset, count;
};

// How a chunk is cut. Groups and gaps tile [0, count) in order; each group is cut into pieces of kPieceElements, the last one shorter.
class Shape {
 public:
  struct Piece {
    std::uint64_t offset;
    std::uint32_t count, group;
  };
  void clear();
  void add_group(std::uint64_t count);  // appended behind the last one; count 0 adds nothing
  void add_gap(std::uint64_t count) { count_ += count; }  // elements that are neither read nor written
  std::uint64_t count() const { return count_; }
  std::span<const Group> groups() const { return groups_; }
  std::span<const Piece> pieces() const { return pieces_; }
  std::size_t first_piece(std::size_t group) const { return first_piece_[group]; }
  // Bytes from the body's start to the first piece, and the most bytes a body can have. Both multiples of kPayloadAlign.
  std::size_t prefix_bytes(const Codec&) const;
  std::size_t body_bound(const Codec&) const;

 private:
  std::uint64_t count_ = 0;
  std::vector<Group> groups_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> first_piece_;
};

// Error feedback of one group; element 0 of both pointers is the group's first element. Null: none.
struct Feedback {
  const float* in = nullptr;
  float* out = nullptr;
  float scale = -1.0f;  // >= 0: use this scale (the group is part of a larger one that was measured as a whole)
};

// Called between pieces on the calling thread, so that an exchange under way keeps moving. May be empty. Must not throw.
using Progress = std::function<void()>;

// Encodes shape.count() values; feedback has one entry per group or is empty. `body` has room for body_bound(). Returns the body's bytes.
std::size_t encode_body(const Codec&, const Shape&, const float* values, std::span<const Feedback> feedback, std::uint8_t* body,
                        Workers&, const Progress& = {});

// A received body, checked against shape and codec: sizes, lengths, finite non-negative scales. The bytes stay the caller's.
class BodyView {
 public:
  // Empty on success, else what is wrong with the bytes.
  std::string open(const Codec&, const Shape&, std::span<const std::uint8_t> body);
  float scale(std::size_t group) const;
  std::span<const std::uint8_t> piece(std::size_t index) const {
    return body_.subspan(offsets_[index], offsets_[index + 1] - offsets_[index]);
  }

 private:
  std::span<const std::uint8_t> body_;
  bool has_scale_ = false;
  std::vector<std::uint64_t> offsets_;
};

// out[i] = (accumulate ? out[i] : 0) + bodies[0][i] + bodies[1][i] + ..., added in exactly this order for every element, whatever the
// number of threads. Returns the index of the first body with malformed pieces, or -1.
int decode_add(const Codec&, const Shape&, std::span<const BodyView> bodies, float* out, bool accumulate, Workers&, const Progress& = {});

}  // namespace crimp
